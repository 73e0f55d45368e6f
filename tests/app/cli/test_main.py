from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import click
import pytest

from aoti_debug.app.cli import main
from aoti_debug.app.cli.main import interrupted_lines
from aoti_debug.base.errors import (
    AotiDebugError,
    ArtifactError,
    InternalError,
    RunDirError,
    TargetError,
    ToolchainError,
    UsageError,
)
from aoti_debug.base.machine.files import stamped_directories
from tests.paths import ROOT
from tests.runs.show.recorded import level_2


def raising(error: BaseException) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


def run_verb(monkeypatch: pytest.MonkeyPatch, command: click.Command) -> int:
    monkeypatch.setattr(main.Verbs, "get_command", lambda self, ctx, name: command)
    return main.run(["build"])


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError, 2), (ArtifactError, 3), (ToolchainError, 4), (TargetError, 5), (RunDirError, 6), (InternalError, 70)],
)
def test_every_error_has_its_exit_code_and_its_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: type[AotiDebugError], code: int
) -> None:
    assert run_verb(monkeypatch, raising(error("it broke", hint="mend it"))) == code
    assert capsys.readouterr() == ("", "error: it broke\nhint: mend it\n")


def test_a_bug_is_named_with_its_place_and_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_verb(monkeypatch, raising(ZeroDivisionError("by zero"))) == 70
    first, hint, *traceback = capsys.readouterr().err.splitlines()
    assert first.startswith("error: a bug in aoti-debug: ZeroDivisionError: by zero (test_main.py:")
    assert hint == "hint: please report this with the lines below"
    assert traceback[0] == "Traceback (most recent call last):"
    assert traceback[-1] == "ZeroDivisionError: by zero"


def test_a_full_disk_is_no_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verb(monkeypatch, raising(OSError(errno.ENOSPC, "full", "/tmp/model.so"))) == 5
    first, hint = capsys.readouterr().err.splitlines()
    assert first == "error: No space left on device: /tmp/model.so"
    assert hint.startswith("hint: free some space; ")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EROFS, errno.EMFILE])
def test_what_the_system_refuses_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    assert run_verb(monkeypatch, raising(OSError(number, "refused", "/tmp/run"))) == 5
    error = RunDirError("cannot read /tmp/run")
    error.__cause__ = OSError(number, "refused")
    assert run_verb(monkeypatch, raising(error)) == 6
    first, hint, second, same = capsys.readouterr().err.splitlines()
    assert first == f"error: {os.strerror(number)}: /tmp/run"
    assert second == "error: cannot read /tmp/run"
    assert hint == same
    assert hint.startswith("hint: ")


@pytest.mark.parametrize(("number", "code"), [(errno.EIO, 5), (None, 70)])
def test_an_archive_that_the_system_does_not_read_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int | None, code: int
) -> None:
    error = zipfile.BadZipFile("File is not a zip file")
    error.__context__ = None if number is None else OSError(number, "refused", "/c/a.pt2")
    assert run_verb(monkeypatch, raising(error)) == code
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("error: Input/output error: /c/a.pt2" if number else "error: a bug in aoti-debug: ")


def test_no_memory_is_no_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verb(monkeypatch, raising(MemoryError())) == 5
    first, hint = capsys.readouterr().err.splitlines()
    assert first == "error: out of memory"
    assert hint.startswith("hint: end other programs, or use a machine with more memory; ")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    assert run_verb(monkeypatch, raising(error)) == 130
    assert capsys.readouterr().out == ""


def test_a_verb_may_return_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.pass_context
    def finding(context: click.Context) -> None:
        context.exit(1)

    assert run_verb(monkeypatch, finding) == 1
    assert run_verb(monkeypatch, click.Command("clean", callback=lambda: None)) == 0


def test_usage_errors_lead_to_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["build", "--level", "7", "x.pt2"]) == 2
    assert capsys.readouterr().err == (
        "error: Invalid value for '--level': level 7 is not one of 0, 1, 2, 3, hash\nhint: aoti-debug build --help\n"
    )


def test_a_forgotten_verb_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["model.pt2"]) == 2
    assert capsys.readouterr().err == (
        "error: no command is given; perhaps: aoti-debug build model.pt2\nhint: aoti-debug --help\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["triag", "a b.pt2"], "there is no command triag; perhaps: aoti-debug triage 'a b.pt2'"),
        (["sh"], "there is no command sh; perhaps: aoti-debug show"),
        (["qqqq"], "there is no command qqqq"),
    ],
)
def test_a_misspelt_command_is_offered(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main.run(words) == 2
    assert capsys.readouterr().err == f"error: {said}\nhint: aoti-debug --help\n"


def test_a_misspelt_variable_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AOTI_DEBUG_FILTR", "a*")
    monkeypatch.setenv("AOTI_DEBUG_FILTER", "a*")
    assert run_verb(monkeypatch, click.Command("clean", callback=lambda: None)) == 0
    assert capsys.readouterr().err == "warning: AOTI_DEBUG_FILTR is not known; perhaps AOTI_DEBUG_FILTER\n"


def test_a_full_disk_is_no_wrong_usage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = UsageError("cannot write here", hint="--out DIR")
    error.__cause__ = OSError(errno.ENOSPC, "full")
    assert run_verb(monkeypatch, raising(error)) == 5
    error.__cause__ = OSError(errno.EACCES, "not yours")
    assert run_verb(monkeypatch, raising(error)) == 2
    assert capsys.readouterr().err.splitlines() == ["error: cannot write here", "hint: --out DIR"] * 2


@pytest.mark.parametrize("words", [["--version"], ["doctor"]])
def test_a_closed_pipe_is_no_finding(words: list[str]) -> None:
    """`--version` writes before a command is chosen; its one line is there before anybody stops to read."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "aoti_debug", *words], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (main.CLOSED_PIPE, b"")


def test_a_pipe_to_a_process_is_another_matter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_verb(monkeypatch, raising(BrokenPipeError(errno.EPIPE, "Broken pipe"))) == 70
    assert capsys.readouterr().err.startswith("error: a process has gone: ")


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_lists_every_verb_and_loads_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run(arguments) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert all(f"  {verb} " in text for verb in main.VERBS)


@pytest.mark.parametrize("verb", list(main.VERBS))
@pytest.mark.parametrize("columns", [80, 120, 200])
def test_every_verb_has_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main.run([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: aoti-debug {verb} ")
    assert max(map(len, text.splitlines())) <= min(columns, 100)


def test_starts_fast_and_without_torch() -> None:
    code = "import sys; from aoti_debug.app.cli.main import run; run(['--help']); sys.exit('torch' in sys.modules)"
    began = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert ran.returncode == 0
    assert time.monotonic() - began < 2  # 0.06 s alone; the machine may be busy


@pytest.mark.parametrize(
    ("words", "resilient", "starts"),
    [
        (["run", "m.pt2"], False, True),
        (["run", "--help"], False, False),
        (["run", "m.pt2"], True, False),
        (["run", "m.pt2", "--import", "mine"], False, True),
        (["triage", "m.pt2"], False, True),
        (["diff", "one", "two.pt2"], False, True),
        (["diff", "one", "two"], False, False),
        (["triage", "m.pt2", "--import", "mine"], False, False),
        (["triage", "m.pt2", "--import=mine"], False, False),
        (["show"], False, False),
    ],
)
def test_torch_is_imported_at_once_where_models_run(
    words: list[str], resilient: bool, starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(
        "aoti_debug.base.machine.processes.fork_client.ForkServer.preload", lambda server: started.append(server)
    )
    with click.Context(main.group, resilient_parsing=resilient, help_option_names=["-h", "--help"]) as context:
        name, _, _ = main.group.resolve_command(context, words)
    assert name == words[0]
    assert bool(started) is starts


def test_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = level_2(Path("aoti-debug/runs")).path.resolve()
    triage = tmp_path / "aoti-debug/triages/20261120-231500-4711"
    inner = triage / "runs/20261120-231502-4711"
    inner.mkdir(parents=True)
    assert interrupted_lines([run, triage, inner, tmp_path / "gone"]) == [
        "interrupted",
        f"kept: aoti-debug/runs/{run.name}, 3 launches in 1 call",
        "next: aoti-debug show",
        f"kept: aoti-debug/triages/{triage.name}",
    ]
    assert interrupted_lines([tmp_path / "gone"]) == ["interrupted: nothing is kept"]


def test_an_interrupted_command_names_what_it_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []

    @click.command("doctor")
    def interrupted() -> None:
        made.append(stamped_directories.create(tmp_path / "runs"))
        signal.raise_signal(signal.SIGINT)

    stamped_directories.create(tmp_path / "runs")  # by something else
    monkeypatch.setattr("aoti_debug.app.cli.commands.doctor.command", interrupted)
    assert main.run(["doctor"]) == main.INTERRUPTED
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-2:]) == ("", ["interrupted", f"kept: {made[0]}"])
