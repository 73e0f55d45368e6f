from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.abi import FaultDomain, NoteCode, Phase, SaveStatus
from aoti_debug.package.manifest import Kind, Role, Unrecognised
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.verdict import Proof
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from aoti_debug.runs.show import overview
from tests import factories
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site
from tests.runs.diagnosis.judged_runs import (
    ABRT,
    CLEAN,
    CPP,
    CPU,
    CUDA,
    DEVICE,
    ITEM,
    KILLED,
    PROXY,
    RAISED,
    SEGV,
    TIMEOUT,
    TRITON,
    X,
    judge,
    started,
    summary,
)


def test_a_clean_run_has_no_verdict(tmp_path: Path) -> None:
    writer = started(CPP, PROXY)
    writer.call_end(launches=2)
    assert judge(tmp_path, writer, CLEAN) is None


# The host


def test_a_crash_within_a_launch(tmp_path: Path) -> None:
    verdict = judge(tmp_path, started(CPP, PROXY, ended=1), SEGV)
    assert summary(verdict) == ("SIGSEGV (Segmentation fault)", Proof.CERTAIN, ["0.1"])
    assert verdict
    assert verdict.launch is not None
    assert verdict.launch.kernel == "mylib::op.default"
    assert verdict.why == "launch 0.1 began and never returned"
    assert verdict.surfaced is None


@pytest.mark.parametrize("ended", [0, 1])
def test_an_end_after_the_recording_has_stopped(tmp_path: Path, ended: int) -> None:
    writer = started(CPP, ended=ended)
    writer.note(NoteCode.RECORDING_STOPPED, "recording stopped: the journal has reached AOTI_DEBUG_JOURNAL_BYTES")
    writer.lost_records = 1
    writer.level = 2
    for name, end in {"crash": SEGV, "hang": TIMEOUT}.items():
        verdict = judge(tmp_path / name, writer, end, host="embedded", command=("./server",))
        assert summary(verdict)[1:] == (Proof.NONE, [])
        assert verdict is not None
        assert verdict.why == (
            "recording stopped: the journal has reached AOTI_DEBUG_JOURNAL_BYTES, at launch 0.0; "
            "the model went on after that"
        )
        assert verdict.next_commands == ("AOTI_DEBUG_LEVEL=3 ./server",)


def test_a_launch_that_the_device_had_not_completed_when_the_recording_stopped(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, crumb_every=1)
    writer.lost_records = 1
    verdict = judge(tmp_path, writer, DEVICE, CUDA, crumbs=factories.crumbs(1))
    assert summary(verdict)[1:] == (Proof.CERTAIN, ["0.1"])


def test_without_breadcrumbs_a_launch_may_have_failed_after_the_recording_stopped(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON)
    writer.lost_records = 1
    assert summary(judge(tmp_path / "device", writer, DEVICE, CUDA))[1:] == (Proof.NONE, [])
    inside = started(CPP, ended=0)
    inside.lost_records = 1
    assert summary(judge(tmp_path / "host", inside, SEGV, CUDA))[1:] == (Proof.NONE, [])


def test_a_crash_within_a_launch_of_a_later_call(tmp_path: Path) -> None:
    writer = started(CPP)
    writer.call_end(launches=1)
    writer.call_begin(1)
    writer.launch_begin(0, CPP, X, call=1)
    assert summary(judge(tmp_path, writer, SEGV)) == ("SIGSEGV (Segmentation fault)", Proof.CERTAIN, ["1.0"])


def test_a_crash_while_two_threads_were_within_a_launch(tmp_path: Path) -> None:
    writer = started(CPP, ended=0)
    writer.thread = 2
    writer.call_begin(1)
    writer.launch_begin(0, PROXY, X, call=1)
    verdict = judge(tmp_path, writer, SEGV)
    assert summary(verdict) == ("SIGSEGV (Segmentation fault)", Proof.RANGE, ["0.0", "1.0"])
    assert verdict
    assert verdict.launch is None
    assert verdict.why == "2 threads were within a launch; nothing says which of them failed"


def test_another_threads_finished_launch_is_not_blamed(tmp_path: Path) -> None:
    writer = started(CPP, ended=0)
    writer.thread = 2
    writer.call_begin(1)
    writer.launch(0, PROXY, X, call=1)
    assert summary(judge(tmp_path, writer, SEGV)) == ("SIGSEGV (Segmentation fault)", Proof.CERTAIN, ["0.0"])


def test_a_crash_outside_of_the_calls_of_the_model(tmp_path: Path) -> None:
    """In code of the program that called it, or of another library."""
    writer = started(CPP, PROXY)
    writer.call_end()
    verdict = judge(tmp_path, writer, SEGV)
    assert verdict
    assert verdict.why == "it happened outside of the model's calls; all had ended, 0.1 was the last launch"


def test_the_innermost_launch_of_a_thread_is_blamed(tmp_path: Path) -> None:
    writer = started(PROXY, ended=0)
    writer.call_begin(1)
    writer.launch_begin(0, CPP, X, call=1)
    assert summary(judge(tmp_path, writer, SEGV)) == ("SIGSEGV (Segmentation fault)", Proof.CERTAIN, ["1.0"])


def test_a_crash_between_launches(tmp_path: Path) -> None:
    verdict = judge(tmp_path, started(CPP, PROXY), SEGV)
    assert summary(verdict) == ("SIGSEGV (Segmentation fault)", Proof.NONE, [])
    assert verdict
    assert verdict.why == "it happened between launches; 0.1 was the last one to return"


def test_a_crash_that_may_have_been_in_a_call_that_is_not_recorded(tmp_path: Path) -> None:
    package = replace(CPU, unrecognised=(Unrecognised("run_impl", 7, "launch_other(buf0);"),))
    verdict = judge(tmp_path, started(CPP, PROXY), SEGV, package)
    assert verdict
    assert verdict.why.endswith("; it may have happened in one of 1 call that the build did not parse")


def test_a_crash_before_the_first_launch(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.call_begin()
    verdict = judge(tmp_path, writer, SEGV)
    assert verdict
    assert verdict.why == "it happened before the first launch"


def test_a_crash_after_the_last_call(tmp_path: Path) -> None:
    exit_ = Exit(ExitKind.FAULT, "killed by SIGSEGV", RunStage.UNLOAD, "SIGSEGV")
    verdict = judge(tmp_path, started(CPP), exit_)
    assert verdict
    assert verdict.why == "it happened after the last call; every launch had returned, 0.0 last"


def test_level_0_knows_nothing(tmp_path: Path) -> None:
    verdict = judge(tmp_path, None, SEGV, level=0)
    assert verdict
    assert (verdict.why, verdict.suspects) == ("level 0 records nothing", ())
    assert verdict.next_commands == ("aoti-debug run m.pt2 --level 3",)


def test_an_exception_in_a_launch(tmp_path: Path) -> None:
    writer = started(CPP, PROXY, ended=1)
    writer.launch_end(1, status=-1)
    writer.fault(1, FaultDomain.EXCEPTION, text="index 99 is out of bounds")
    writer.call_end(launches=2, failed=True)
    verdict = judge(tmp_path, writer, RAISED)
    assert summary(verdict) == ("index 99 is out of bounds", Proof.CERTAIN, ["0.1"])
    assert verdict
    assert verdict.why == "launch 0.1 raised an exception"


def test_an_exception_outside_of_any_launch(tmp_path: Path) -> None:
    writer = started(CPP)
    writer.fault(None, FaultDomain.EXCEPTION, text="an exception left the model outside any launch")
    verdict = judge(tmp_path, writer, RAISED)
    assert summary(verdict) == ("RuntimeError: run_func_ failed", Proof.NONE, [])
    assert verdict
    assert verdict.why == "it happened between launches; 0.0 was the last one to return"


def test_an_exception_that_the_package_never_saw(tmp_path: Path) -> None:
    verdict = judge(tmp_path, started(CPP), RAISED)
    assert summary(verdict) == ("RuntimeError: run_func_ failed", Proof.NONE, [])


def test_an_error_code_that_the_generated_code_drops(tmp_path: Path) -> None:
    writer = started(CPP, PROXY, ended=1)
    writer.launch_end(1, status=1)
    writer.fault(1, FaultDomain.SHIM, 1, "index out of range")
    writer.launch(2, CPP, X)
    writer.call_end(launches=3)
    verdict = judge(tmp_path, writer, CLEAN)
    assert summary(verdict) == ("index out of range", Proof.CERTAIN, ["0.1"])
    assert verdict
    assert verdict.why == "it returned error code 1, which the generated code does not check: the model went on"


def test_a_crash_after_an_error_code_is_the_crashs(tmp_path: Path) -> None:
    writer = started(PROXY, ended=0)
    writer.launch_end(0, status=1)
    writer.fault(0, FaultDomain.SHIM, 1, "index out of range")
    writer.launch_begin(1, CPP, X)
    assert summary(judge(tmp_path, writer, SEGV)) == ("SIGSEGV (Segmentation fault)", Proof.CERTAIN, ["0.1"])


def test_an_abort_for_an_exception_that_was_not_caught(tmp_path: Path) -> None:
    writer = started(CPP, PROXY, ended=1)
    writer.launch_end(1, status=-1)
    writer.fault(1, FaultDomain.EXCEPTION, text="boom")
    writer.call_end(launches=2, failed=True)
    assert summary(judge(tmp_path, writer, ABRT)) == ("boom", Proof.CERTAIN, ["0.1"])


def test_an_abort_within_a_launch(tmp_path: Path) -> None:
    assert summary(judge(tmp_path, started(CPP, ended=0), ABRT)) == ("SIGABRT (Aborted)", Proof.CERTAIN, ["0.0"])


def test_a_hang_within_a_launch(tmp_path: Path) -> None:
    verdict = judge(tmp_path, started(CPP, CPP, ended=1), TIMEOUT)
    assert summary(verdict) == ("no end: it was killed after 5 s", Proof.CERTAIN, ["0.1"])


def test_a_killed_process_was_within_a_launch(tmp_path: Path) -> None:
    assert summary(judge(tmp_path, started(CPP, CPP, ended=1), KILLED)) == ("SIGKILL (Killed)", Proof.LIKELY, ["0.1"])


def test_a_host_that_vanished(tmp_path: Path) -> None:
    writer = started(CPP, CPP, ended=1)
    verdict = judge(tmp_path, writer, Exit(ExitKind.RUNNING), host="embedded", pid=1 << 22)
    assert summary(verdict) == ("the process vanished", Proof.LIKELY, ["0.1"])


def test_a_host_that_vanished_in_a_call_after_an_exception_that_it_caught(tmp_path: Path) -> None:
    writer = started(CPP, PROXY, ended=1)
    writer.launch_end(1, status=-1)
    writer.fault(1, FaultDomain.EXCEPTION, text="boom")
    writer.call_end(launches=2, failed=True)
    caught = judge(tmp_path, writer, Exit(ExitKind.RUNNING), host="embedded", pid=1 << 22, name="caught")
    assert summary(caught) == ("boom", Proof.CERTAIN, ["0.1"])
    writer.call_begin(1)
    writer.launch_begin(0, CPP, X, call=1)
    verdict = judge(tmp_path, writer, Exit(ExitKind.RUNNING), host="embedded", pid=1 << 22, name="crashed")
    assert summary(verdict) == ("the process vanished", Proof.LIKELY, ["1.0"])


def test_a_run_that_goes_on_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aoti_debug.runs.rundir.run_directory._is_alive", lambda info: True)
    assert judge(tmp_path, started(CPP, ended=0), Exit(ExitKind.RUNNING)) is None


# What to type next


@pytest.mark.parametrize(("level", "verbs"), [(1, ["aoti-debug show"]), (2, ["aoti-debug run", "aoti-debug show"])])
def test_a_launch_that_cannot_be_replayed(tmp_path: Path, level: int, verbs: list[str]) -> None:
    """Its tensors are shown; a run at another level has none."""
    writer = JournalWriter(level=level)
    writer.call_begin()
    writer.launch_begin(0, ITEM, X)
    verdict = judge(tmp_path, writer, SEGV)
    assert verdict is not None
    assert [" ".join(command.split()[:2]) for command in verdict.next_commands] == verbs


def test_next_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTI_DEBUG_DIR", str(tmp_path))
    run = run_directory(tmp_path, CPU, started(CPP, ended=0), exit=SEGV)
    (run / "package.pt2").touch()
    verdict = diagnose(open_run(run))
    assert verdict
    assert verdict.next_commands == ("aoti-debug repro cpp_fused_relu_0 --launch 0.0",)
    verdict = judge(tmp_path, started(ITEM, ended=0), SEGV, name="item", command=("aoti-debug", "run", "a b.pt2"))
    assert verdict
    assert verdict.next_commands == ("aoti-debug run 'a b.pt2' --level 1", "aoti-debug show 0.0")


def test_next_commands_name_a_run_that_is_not_the_latest(tmp_path: Path) -> None:
    run = run_directory(tmp_path, CPU, started(CPP, ended=0), exit=SEGV)
    (run / "package.pt2").touch()
    verdict = diagnose(open_run(run))
    assert verdict
    assert verdict.next_commands == (f"aoti-debug repro cpp_fused_relu_0 --launch 0.0 --run {run}",)


def test_next_command_of_a_host_of_its_own(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"host": "embedded", "command": ("./server", "--level", "9"), "pid": 1 << 22}
    verdict = judge(tmp_path, started(ITEM, ended=0), Exit(ExitKind.RUNNING), **fields)
    assert verdict
    assert verdict.next_commands[0] == "AOTI_DEBUG_LEVEL=1 ./server --level 9"


@pytest.mark.parametrize("host", ["embedded", "aoti-debug run"])
@pytest.mark.parametrize("has_package", [False, True])
def test_a_repro_is_suggested_only_where_it_can_be_made(tmp_path: Path, host: str, has_package: bool) -> None:
    run = run_directory(tmp_path, CPU, started(CPP, ended=0), exit=SEGV, host=host, command=("./server",))
    if has_package:
        (run / "package.pt2").touch()
    verdict = diagnose(open_run(run))
    assert verdict
    can_run_again = has_package and host != "embedded"
    assert (verdict.next_commands[0].startswith("aoti-debug repro ")) == can_run_again
    assert ("AOTI_DEBUG_LAUNCH=0.0" in verdict.next_commands[0]) != can_run_again


@pytest.mark.parametrize(
    ("role", "status", "is_enough"),
    [
        (Role.IN, SaveStatus.WRITTEN, True),
        (Role.IN, SaveStatus.LINKED, True),
        (Role.IN, SaveStatus.SKIPPED, False),
        (Role.IN, None, False),
        (Role.OUT, None, True),
    ],
)
def test_a_repro_of_a_host_of_its_own_needs_the_inputs_of_the_launch(
    tmp_path: Path, role: Role, status: SaveStatus | None, is_enough: bool
) -> None:
    package = make_manifest(site("cpp_fused_relu_0", arg("buf0", role), kind=Kind.CPP))
    writer = JournalWriter(level=2)
    writer.call_begin()
    writer.launch_begin(0, 0, X)
    if status is not None:
        writer.tensor_file(0, 0, Phase.BEFORE, "tensors/0/a", status=status)
    verdict = diagnose(open_run(run_directory(tmp_path, package, writer, exit=SEGV, host="embedded")))
    assert verdict
    assert verdict.next_commands[0].startswith("aoti-debug repro ") == is_enough


def test_the_level_is_replaced(tmp_path: Path) -> None:
    command = ("aoti-debug", "run", "m.pt2", "--level", "3", "--calls", "2")
    verdict = judge(tmp_path, started(ITEM, ended=0), SEGV, command=command)
    assert verdict
    assert verdict.next_commands[0] == "aoti-debug run m.pt2 --level 1 --calls 2"


def test_an_error_code_of_the_shim_is_no_error_of_the_device(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, ended=1, crumb_every=1)
    writer.launch_end(1, status=700)
    writer.fault(1, FaultDomain.SHIM, 700, "it failed")
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(0))
    assert verdict
    assert [launch.id for launch in verdict.suspects] == ["0.1"]
    assert "CUDA error" not in verdict.what


def test_a_journal_that_is_cut_off_blames_no_launch(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.call_begin()
    journal.launch_begin(0, 0, factories.tensor(2))
    package = make_manifest(site("first", arg("x")))
    path = run_directory(tmp_path, package, journal, exit=Exit(ExitKind.FAULT, "killed by SIGSEGV", signal="SIGSEGV"))
    whole = diagnose(open_run(path))
    assert whole is not None
    assert (whole.proof, [launch.id for launch in whole.suspects]) == (Proof.CERTAIN, ["0.0"])
    with (path / "journal.bin").open("r+b") as file:
        file.truncate(1000)  # within the block, behind its last record
    verdict = diagnose(open_run(path))
    assert verdict is not None
    assert (verdict.proof, verdict.suspects) == (Proof.NONE, ())
    assert verdict.why == (
        "the last launch that can be read is 0.0; "
        "the journal is damaged or cut off: the launch that it happened in may be missing"
    )
    assert overview.notes(open_run(path)) == ["the journal is cut off: launches may be missing"]
