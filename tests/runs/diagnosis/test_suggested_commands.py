from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests.factories import run_directory
from tests.runs.diagnosis.judged_runs import CPP, CPU, PROXY, SEGV, judge, started


def run_of(base: Path, *command: str) -> RunDir:
    return open_run(run_directory(base, CPU, started(CPP), exit=SEGV, host="embedded", command=command))


def test_a_server_is_started_again_with_variables(tmp_path: Path) -> None:
    run = run_of(tmp_path, "./server", "--port", "80")
    assert suggested_commands.run_again(run, level=1) == ("AOTI_DEBUG_LEVEL=1 ./server --port 80",)


def test_a_script_is_recorded_again_at_another_level(tmp_path: Path) -> None:
    run = run_of(tmp_path, "aoti-debug", "exec", "--stall", "5", "serve.py", "--level", "debug")
    assert suggested_commands.run_again(run, level=1) == (
        "AOTI_DEBUG_LEVEL=1 aoti-debug exec --stall 5 serve.py --level debug",
    )
    given = run_of(tmp_path / "given", "aoti-debug", "exec", "--level", "2", "serve.py", "--level", "debug")
    assert suggested_commands.run_again(given, level=3) == ("aoti-debug exec --level 3 serve.py --level debug",)


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("/usr/bin/python3",),
        ("/usr/bin/python3", "-i"),
        ("/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "/run/kernel.json"),
        ("/usr/bin/python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)"),
        ("/usr/bin/python3", "-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"),
    ],
)
def test_a_process_that_no_command_starts_again_is_shown(tmp_path: Path, command: tuple[str, ...]) -> None:
    run = run_of(tmp_path, *command)
    assert suggested_commands.run_again(run, level=1) == ()
    verdict = judge(tmp_path / "crash", started(PROXY, ended=0), SEGV, host="embedded", command=command)
    assert verdict is not None
    assert [line.partition(" --run ")[0] for line in verdict.next_commands] == ["aoti-debug show 0.0"]


def test_a_run_of_somebody_else_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would run its code again, or write a repro of it, asks for trust first."""
    here = judge(tmp_path / "here", started(CPP, ended=0), SEGV)
    assert here is not None
    assert here.next_commands[0] == "AOTI_DEBUG_LAUNCH=0.0 aoti-debug run m.pt2 --level 1"
    path = run_directory(tmp_path / "foreign", CPU, started(CPP, ended=0), exit=SEGV)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = open_run(path)
    assert not run.is_made_here
    assert suggested_commands.run_again(run, level=1) == ()
    assert suggested_commands.why_nonfinite(run) == (suggested_commands.show(run),)


def test_a_run_below_the_current_directory_is_named_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path / "server/runs")
    monkeypatch.chdir(tmp_path)
    here = run.path.relative_to(tmp_path)
    assert suggested_commands.show(run, "0.0") == f"aoti-debug show 0.0 --run {here}"
    assert open_run(here).path.resolve() == run.path.resolve()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert suggested_commands.show(run, "0.0") == f"aoti-debug show 0.0 --run {run.path}"


def test_what_looks_further_calls_the_model_as_often(tmp_path: Path) -> None:
    run = open_run(run_directory(tmp_path, CPU, started(CPP), calls=3, imports=("ops",)))
    (run.path / "inputs.pt").touch()
    given = f"--inputs {run.path.resolve() / 'inputs.pt'} --import ops --calls 3"
    assert suggested_commands.triage(run, Path("m.pt2")) == f"aoti-debug triage m.pt2 {given}"
    assert suggested_commands.bisect_settings(Path("m.pt2"), suggested_commands.options_of(run)) == (
        f"aoti-debug bisect m.pt2 --settings {given}"
    )
