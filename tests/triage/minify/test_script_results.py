"""Scripts that show a finding, show none, or fail."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.machine.processes import tied_process
from aoti_debug.base.machine.processes.child_process import FinishedProcess
from aoti_debug.triage.minify.script_results import (
    COMPILING,
    NAME,
    Known,
    ScriptTrial,
    ScriptTrials,
    ScriptVerdict,
    TriageAnswer,
    is_like,
    run_script,
)
from tests.shell_children import is_dead, wait_for

VERDICT = ScriptVerdict(TriageAnswer.NO, "CLEAN nothing is wrong")
TRIAL = ScriptTrial("abc", "2 of 3 calls", observed="relu", shown=1)


def test_an_interrupted_minimisation_goes_on(tmp_path: Path) -> None:
    trials = ScriptTrials(tmp_path, "key")
    trials.know(Known("triage", {"kind": "fault"}))
    trials.add(TRIAL)
    trials.judge("abc", VERDICT)
    again = ScriptTrials(tmp_path, "key")
    assert (again.all, again.known, again.earlier) == ((TRIAL,), Known("triage", {"kind": "fault"}), 1)
    assert again.find("abc") == TRIAL
    assert again.find("other") is None
    assert (again.verdict("abc"), again.verdict("other")) == (VERDICT, None)


@pytest.mark.parametrize("key", ["key", "other"])
def test_a_finished_or_another_one_begins_anew(key: str, tmp_path: Path) -> None:
    trials = ScriptTrials(tmp_path, "key")
    trials.add(TRIAL)
    if key == "key":
        trials.finish()
    assert ScriptTrials(tmp_path, key).all == ()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{")
    with pytest.raises(RunDirError, match=r"minify\.json is damaged"):
        ScriptTrials(tmp_path, "key")


SEARCH = """
import sys
from pathlib import Path
from aoti_debug.triage.minify.script_results import run_script
from aoti_debug.triage.minify.script_results import ScriptTrial
run_script(Path(sys.argv[1]), ScriptTrial("hash", "name"), 600.0)
"""


@pytest.mark.parametrize(
    ("script", "observed", "shown", "failure"),
    [
        ("print('as expected')", "", 0, ""),
        ("sys.exit('observed: relu: 3; 4; expected: what eager computes')", "relu: 3; 4", 1, ""),
        ("sys.exit('observed: SIGSEGV, in 7 of 20 runs; expected: that it returns')", "SIGSEGV", 7, ""),
        ("raise ValueError('no such operator')", "", 0, "ValueError: no such operator"),
        ("import os; os.abort()", "", 0, "SIGABRT"),
    ],
)
def test_what_a_script_shows(script: str, observed: str, shown: int, failure: str, tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    path.write_text(f"import sys\n{script}\n")
    trial = run_script(path, ScriptTrial("hash", "name", runs=20), 60.0)
    assert (trial.observed, trial.shown, trial.runs, trial.failure) == (observed, shown, 20, failure)
    assert trial.seconds > 0


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("SIGSEGV", "SIGABRT", True),
        ("SIGSEGV", "no end within 60 s", False),
        ("KeyError: 3", "KeyError: 4", True),
        ("KeyError: 3", "RuntimeError: 3", False),
        ("relu: Tensor-likes are not close!", "add: Tensor-likes are not close!", True),
    ],
)
def test_alike(one: str, other: str, alike: bool) -> None:
    assert is_like(one, other) is alike


def test_every_run_may_take_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def run(command: list[str], *, timeout: float, environment: Mapping[str, str]) -> FinishedProcess:
        given.append(timeout)
        return FinishedProcess(0, "", "")

    monkeypatch.setattr(tied_process, "run", run)
    run_script(tmp_path / "repro.py", ScriptTrial("hash", "name", runs=20), 600.0)
    assert given == [COMPILING + 21 * 600.0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_a_script_and_its_child_end_with_the_search(number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    path.write_text(
        "import os, subprocess, time\n"
        f"child = subprocess.Popen(['sh', '-c', 'echo $$ > {tmp_path / 'child'}; sleep 600'])\n"
        f"print(os.getpid(), file=open({str(tmp_path / 'own')!r}, 'w', buffering=1))\n"
        "time.sleep(600)\n"
    )
    search = subprocess.Popen([sys.executable, "-c", SEARCH, str(path)], stderr=subprocess.DEVNULL)
    running = [wait_for(tmp_path / "own"), wait_for(tmp_path / "child")]
    search.send_signal(number)
    search.wait()
    assert all(map(is_dead, running))
