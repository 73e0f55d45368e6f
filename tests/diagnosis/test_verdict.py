from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import factories
import pytest
from factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

from aoti_debug.abi import FaultDomain, LaunchFlag, NoteCode
from aoti_debug.diagnosis.verdict import Proof, Verdict, diagnose
from aoti_debug.manifest import Kind, Manifest, Role
from aoti_debug.native import crash_stacks
from aoti_debug.native.crash_stacks import Backtrace, Stack
from aoti_debug.native.frames import StackFrame
from aoti_debug.rundir.run_directory import find, open_run
from aoti_debug.rundir.run_json import Exit, ExitKind, Stage

X = tensor(8, 32)
SITES = (
    site("cpp_fused_relu_0", arg("x"), arg("buf0", Role.OUT), kind=Kind.CPP),
    site("mylib::op.default", arg("buf0"), arg("buf1", Role.OUT), kind=Kind.PROXY),
    site("triton_poi_fused_0", arg("x"), arg("buf0", Role.OUT), kind=Kind.TRITON),
    site("aoti_torch_item_int64", arg("buf0"), kind=Kind.ITEM),
)
CPU = make_manifest(*SITES)
CUDA = make_manifest(*SITES, device="cuda")
CPP, PROXY, TRITON, ITEM = range(4)

SEGV = Exit(ExitKind.FAULT, "killed by SIGSEGV", Stage.CALL, "SIGSEGV")
ABRT = Exit(ExitKind.FAULT, "killed by SIGABRT", Stage.CALL, "SIGABRT")
KILLED = Exit(ExitKind.ABORTED, "killed by SIGKILL", Stage.CALL, "SIGKILL")
RAISED = Exit(ExitKind.FAULT, "RuntimeError: run_func_ failed", Stage.CALL, exception="RuntimeError")
TIMEOUT = Exit(ExitKind.TIMEOUT, "it was killed after 5 s", Stage.CALL)
DEVICE = Exit(
    ExitKind.FAULT, "AcceleratorError: an illegal memory access", Stage.SYNCHRONISE, exception="AcceleratorError"
)
CLEAN = Exit(ExitKind.CLEAN, "", Stage.UNLOAD)
ILLEGAL = "CUDA error 700: an illegal memory access was encountered"


def judge(
    base: Path, writer: JournalWriter | None, exit_: Exit, package: Manifest = CPU, **fields: Any
) -> Verdict | None:
    return diagnose(open_run(run_directory(base, package, writer, exit=exit_, **fields)))


def summary(verdict: Verdict | None) -> tuple[str, Proof, list[str]]:
    assert verdict is not None
    return verdict.what, verdict.proof, [launch.id for launch in verdict.suspects]


def started(*sites: int, ended: int | None = None, crumb_every: int = 0, call: int = 0) -> JournalWriter:
    """A call whose launches return, all of them or the first `ended`."""
    writer = JournalWriter(crumb_every=crumb_every)
    writer.call_begin(call)
    for launch, number in enumerate(sites):
        if ended is None or launch < ended:
            writer.launch(launch, number, X, call=call)
        else:
            writer.launch_begin(launch, number, X, call=call)
    return writer


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


def test_a_crash_before_the_first_launch(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.call_begin()
    verdict = judge(tmp_path, writer, SEGV)
    assert verdict
    assert verdict.why == "it happened before the first launch"


def test_a_crash_after_the_last_call(tmp_path: Path) -> None:
    exit_ = Exit(ExitKind.FAULT, "killed by SIGSEGV", Stage.UNLOAD, "SIGSEGV")
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
    assert verdict.why == "an exception left it"


def test_an_exception_outside_of_any_launch(tmp_path: Path) -> None:
    writer = started(CPP)
    writer.fault(None, FaultDomain.EXCEPTION, text="an exception left the model outside any launch")
    verdict = judge(tmp_path, writer, RAISED)
    assert verdict
    assert (verdict.proof, verdict.why) == (Proof.NONE, "it was noticed at the end of call 0, in no launch")


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


def test_a_run_that_goes_on_has_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aoti_debug.rundir.run_directory._is_alive", lambda info: True)
    assert judge(tmp_path, started(CPP, ended=0), Exit(ExitKind.RUNNING)) is None


# Stacks


FRAME = StackFrame("ops::act(int)", "/t/libops.so", 1, "/src/ops.cpp", 9)


def caught(base: Path, thread: int, signal: str = "SIGSEGV") -> None:
    """Puts stacks beside an existing run: of two threads, one of which may have died."""
    other = Stack(99, "", None, (StackFrame("ops::other(int)", "/t/libops.so", 1),))
    backtrace = Backtrace((Stack(thread, signal, None, (FRAME,)), other))
    run = find(base=base)
    (run / crash_stacks.NAME).write_text(json.dumps({"format": 1, **asdict(backtrace)}))


def two_threads() -> JournalWriter:
    writer = JournalWriter()
    for thread in (1, 2):
        writer.thread = thread
        writer.call_begin(thread - 1)
        writer.launch_begin(0, CPP, X, call=thread - 1)
    return writer


def rejudge(base: Path) -> Verdict | None:
    return diagnose(open_run(base=base))


@pytest.mark.parametrize(
    ("thread", "proof", "suspects"),
    [(1, Proof.CERTAIN, ["0.0"]), (2, Proof.CERTAIN, ["1.0"]), (7, Proof.RANGE, ["0.0", "1.0"])],
)
def test_the_thread_that_died_tells_which_launch(
    tmp_path: Path, thread: int, proof: Proof, suspects: list[str]
) -> None:
    assert summary(judge(tmp_path, two_threads(), SEGV))[1] is Proof.RANGE
    caught(tmp_path, thread)
    verdict = rejudge(tmp_path)
    assert summary(verdict) == ("SIGSEGV (Segmentation fault)", proof, suspects)
    assert verdict
    assert verdict.frames == ("ops::act at /src/ops.cpp:9",)


def test_a_crash_outside_of_launches_has_frames(tmp_path: Path) -> None:
    judge(tmp_path, started(CPP), SEGV)
    caught(tmp_path, 1)
    verdict = rejudge(tmp_path)
    assert verdict
    assert (verdict.proof, verdict.frames) == (Proof.NONE, ("ops::act at /src/ops.cpp:9",))


def test_a_host_that_vanished_and_left_its_stack(tmp_path: Path) -> None:
    judge(tmp_path, started(CPP, CPP, ended=1), Exit(ExitKind.RUNNING), host="embedded", pid=1 << 22)
    caught(tmp_path, 1)
    verdict = rejudge(tmp_path)
    assert summary(verdict) == ("SIGSEGV (Segmentation fault)", Proof.CERTAIN, ["0.1"])
    assert verdict
    assert verdict.frames == ("ops::act at /src/ops.cpp:9",)


def test_a_hang_shows_the_stack_of_the_thread_in_the_launch(tmp_path: Path) -> None:
    judge(tmp_path, started(CPP, CPP, ended=1), TIMEOUT)
    caught(tmp_path, 1, signal="")
    verdict = rejudge(tmp_path)
    assert verdict
    assert verdict.frames == ("ops::act at /src/ops.cpp:9",)


def test_a_fault_of_the_device_shows_no_stack_of_the_host(tmp_path: Path) -> None:
    writer = started(*[TRITON] * 4, crumb_every=1)
    cuda_fault(writer, None)
    judge(tmp_path, writer, ABRT, CUDA, crumbs=factories.crumbs(2))
    caught(tmp_path, 1, signal="SIGABRT")
    verdict = rejudge(tmp_path)
    assert summary(verdict) == (ILLEGAL, Proof.CERTAIN, ["0.2"])
    assert verdict
    assert verdict.frames == ()


def test_an_exception_tells_where_it_was_raised(tmp_path: Path) -> None:
    writer = started(CPP, PROXY, ended=1)
    writer.launch_end(1, status=1)
    text = "no\nException raised from act at /src/ops.cpp:9 (most recent call first):\nframe #0: x"
    writer.fault(1, FaultDomain.SHIM, 1, text)
    verdict = judge(tmp_path, writer, RAISED)
    assert summary(verdict) == ("no", Proof.CERTAIN, ["0.1"])
    assert verdict
    assert verdict.frames == ("act at /src/ops.cpp:9",)


def test_what_the_process_said_last(tmp_path: Path) -> None:
    judge(tmp_path, started(CPP, ended=0), ABRT)
    (find(base=tmp_path) / "stderr.log").write_text("0.0 before cpp\nfree(): invalid pointer\n")
    assert summary(rejudge(tmp_path))[0] == "SIGABRT (Aborted): free(): invalid pointer"


# The device


def cuda_fault(writer: JournalWriter, launch: int | None, code: int = 700) -> None:
    if launch is not None:
        writer.launch_end(launch, status=-1)
        writer.fault(launch, FaultDomain.EXCEPTION, text="CUDA driver error")
    writer.fault(launch, FaultDomain.CUDA, code, "CUDA_ERROR_ILLEGAL_ADDRESS")


def test_the_launch_after_the_last_crumb_is_guilty_not_the_one_that_noticed(tmp_path: Path) -> None:
    writer = started(*[TRITON] * 8, ended=7, crumb_every=1)
    cuda_fault(writer, 7)
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(3))
    assert summary(verdict) == (ILLEGAL, Proof.CERTAIN, ["0.3"])
    assert verdict
    assert verdict.why == "the device had completed every launch before 0.3, and not 0.3"
    assert verdict.surfaced is not None
    assert verdict.surfaced.id == "0.7"


def test_a_fault_that_is_noticed_where_it_happened(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, ended=1, crumb_every=1)
    cuda_fault(writer, 1)
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(1))
    assert summary(verdict) == (ILLEGAL, Proof.CERTAIN, ["0.1"])
    assert verdict
    assert verdict.surfaced is None


def test_the_first_launch_of_a_run(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, TRITON, crumb_every=1)
    cuda_fault(writer, None)
    assert summary(judge(tmp_path, writer, ABRT, CUDA, crumbs=factories.crumbs(0))) == (
        ILLEGAL,
        Proof.CERTAIN,
        ["0.0"],
    )


def test_a_fault_of_an_earlier_call(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, crumb_every=1)
    writer.call_end(launches=2)
    writer.call_begin(1)
    writer.launch(0, TRITON, X, call=1)
    writer.launch_begin(1, ITEM, X, call=1)
    writer.launch_end(1, status=1, call=1)
    writer.fault(1, FaultDomain.CUDA, 700, call=1)
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(1))
    assert summary(verdict) == (ILLEGAL, Proof.CERTAIN, ["0.1"])
    assert verdict
    assert verdict.surfaced is not None
    assert verdict.surfaced.id == "1.1"


CUDA_H = {  # errors of a kernel that failed while it ran, as cuda.h numbers them
    "ECC_UNCORRECTABLE": 214,
    "NVLINK_UNCORRECTABLE": 220,
    "ILLEGAL_ADDRESS": 700,
    "LAUNCH_TIMEOUT": 702,
    "CONTEXT_IS_DESTROYED": 709,
    "ASSERT": 710,
    "HARDWARE_STACK_ERROR": 714,
    "ILLEGAL_INSTRUCTION": 715,
    "MISALIGNED_ADDRESS": 716,
    "INVALID_ADDRESS_SPACE": 717,
    "INVALID_PC": 718,
    "LAUNCH_FAILED": 719,
    "CONTAINED": 721,
}


@pytest.mark.parametrize("name", CUDA_H)
def test_errors_that_a_later_call_reports(tmp_path: Path, name: str) -> None:
    writer = started(TRITON, TRITON, TRITON, ended=2, crumb_every=1)
    cuda_fault(writer, 2, CUDA_H[name])
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(0))
    assert verdict is not None
    assert [launch.id for launch in verdict.suspects] == ["0.0"]
    assert verdict.surfaced is not None


def test_a_fault_that_the_last_wait_notices(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, TRITON, crumb_every=1)
    writer.call_end(launches=3)
    verdict = judge(tmp_path, writer, DEVICE, CUDA, crumbs=factories.crumbs(1))
    assert summary(verdict) == ("AcceleratorError: an illegal memory access", Proof.CERTAIN, ["0.1"])


def test_a_device_code_in_the_hosts_exception(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, crumb_every=1)
    exit_ = Exit(ExitKind.FAULT, "AcceleratorError: x", Stage.CALL, exception="AcceleratorError", code=700)
    assert summary(judge(tmp_path, writer, exit_, CUDA, crumbs=factories.crumbs(1))) == (
        ILLEGAL,
        Proof.CERTAIN,
        ["0.1"],
    )


def test_a_crumb_every_4_launches_names_a_range_and_how_to_narrow_it(tmp_path: Path) -> None:
    writer = started(*[TRITON] * 12, ended=11, crumb_every=4)
    cuda_fault(writer, 11)
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(4, every=4))
    assert summary(verdict) == (ILLEGAL, Proof.RANGE, ["0.4", "0.5", "0.6", "0.7"])
    assert verdict
    assert verdict.launch is None
    assert verdict.why == "the device had completed every launch before 0.4; no breadcrumb follows up to 0.7"
    assert verdict.next_commands == ("AOTI_DEBUG_CRUMB_EVERY=1 aoti-debug run m.pt2",)


def test_a_range_ends_where_its_call_ends(tmp_path: Path) -> None:
    writer = started(*[TRITON] * 6, crumb_every=4)
    writer.call_end(launches=6)
    writer.call_begin(1)
    writer.launch_begin(0, TRITON, X, call=1)
    cuda_fault(writer, None)
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(4, every=4))
    assert summary(verdict)[2] == ["0.4", "0.5"]
    later = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(6, every=4), name="later")
    assert summary(later)[2] == ["1.0"]


def test_a_number_that_the_host_has_read_narrows_a_range(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, ITEM, TRITON, TRITON, crumb_every=8)
    cuda_fault(writer, None)
    assert summary(judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(0, every=8)))[2] == ["0.3", "0.4"]


def test_an_empty_grid_is_not_suspected(tmp_path: Path) -> None:
    writer = started(TRITON, crumb_every=2)
    writer.launch_begin(1, TRITON, X)
    writer.launch_end(1, flags=LaunchFlag.NOT_STARTED)
    writer.launch(2, TRITON, X)
    cuda_fault(writer, None)
    assert summary(judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(0, every=2)))[2] == ["0.0"]
    later = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(1, every=2), name="later")
    assert summary(later)[2] == ["0.2"]


def test_streams_are_told_apart(tmp_path: Path) -> None:
    writer = JournalWriter(crumb_every=1)
    for launch in range(6):
        writer.launch(launch, TRITON, X, stream_slot=launch % 2)
    cuda_fault(writer, None)
    one = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(3, 6))
    assert summary(one) == (ILLEGAL, Proof.CERTAIN, ["0.4"])
    both = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(3, 4), name="both")
    assert summary(both) == (ILLEGAL, Proof.RANGE, ["0.4", "0.5"])
    assert both
    assert both.why == "2 streams had launches that the device had not completed"
    assert both.next_commands == ("CUDA_LAUNCH_BLOCKING=1 aoti-debug run m.pt2",)


def test_without_crumbs_every_launch_up_to_where_it_was_noticed_is_suspected(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, TRITON, ended=2)
    writer.note(NoteCode.CRUMBS_OFF, "no breadcrumbs: no room in /dev/shm")
    cuda_fault(writer, 2)
    verdict = judge(tmp_path, writer, RAISED, CUDA)
    assert summary(verdict) == (ILLEGAL, Proof.RANGE, ["0.0", "0.1", "0.2"])
    assert verdict
    assert "no room in /dev/shm" in verdict.why
    assert verdict.next_commands == ("CUDA_LAUNCH_BLOCKING=1 aoti-debug run m.pt2",)


def test_a_device_error_from_outside_the_package(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, crumb_every=1)
    cuda_fault(writer, None)
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(2))
    assert summary(verdict) == (ILLEGAL, Proof.NONE, [])
    assert verdict
    assert "outside of the package" in verdict.why


def test_a_launch_that_the_driver_refuses_is_its_own_fault(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, TRITON, ended=2, crumb_every=1)
    writer.launch_end(2, status=-1)
    writer.fault(2, FaultDomain.CUDA, 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(0))
    assert summary(verdict) == ("CUDA error 701: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", Proof.CERTAIN, ["0.2"])
    assert verdict
    assert verdict.why == "the driver refused it"


def test_a_hang_on_the_device(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, TRITON, ITEM, ended=3, crumb_every=1)
    verdict = judge(tmp_path, writer, TIMEOUT, CUDA, crumbs=factories.crumbs(1))
    assert summary(verdict) == ("no end: it was killed after 5 s", Proof.CERTAIN, ["0.1"])


def test_a_hang_of_the_host_while_the_device_is_idle(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, crumb_every=1)
    verdict = judge(tmp_path, writer, TIMEOUT, CUDA, crumbs=factories.crumbs(2))
    assert summary(verdict) == ("no end: it was killed after 5 s", Proof.NONE, [])


def test_a_crash_of_the_host_with_launches_queued(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, PROXY, ended=2, crumb_every=1)
    assert summary(judge(tmp_path, writer, SEGV, CUDA, crumbs=factories.crumbs(0))) == (
        "SIGSEGV (Segmentation fault)",
        Proof.CERTAIN,
        ["0.2"],
    )


def test_an_abort_with_launches_queued_and_nothing_open(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, TRITON, crumb_every=1)
    assert summary(judge(tmp_path, writer, ABRT, CUDA, crumbs=factories.crumbs(1))) == (
        "SIGABRT (Aborted)",
        Proof.LIKELY,
        ["0.1"],
    )


def test_sequence_numbers_wrap_around(tmp_path: Path) -> None:
    writer = JournalWriter(crumb_every=1)
    writer.sequence = 2**32 - 3
    for launch in range(2):
        writer.launch(launch, TRITON, X)
    writer.sequence = -1
    for launch in range(2, 4):
        writer.launch(launch, TRITON, X)
    cuda_fault(writer, None)
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(2**32 - 1))
    assert summary(verdict)[2] == ["0.2"]


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
    verdict = judge(tmp_path, started(CPP, ended=0), SEGV)
    assert verdict
    assert verdict.next_commands == ("aoti-debug repro cpp_fused_relu_0 --launch 0.0",)
    verdict = judge(tmp_path, started(ITEM, ended=0), SEGV, name="item", command=("aoti-debug", "run", "a b.pt2"))
    assert verdict
    assert verdict.next_commands == ("aoti-debug run 'a b.pt2' --level 1", "aoti-debug show 0.0")


def test_next_commands_name_a_run_that_is_not_the_latest(tmp_path: Path) -> None:
    run = run_directory(tmp_path, CPU, started(CPP, ended=0), exit=SEGV)
    verdict = diagnose(open_run(run))
    assert verdict
    assert verdict.next_commands == (f"aoti-debug repro cpp_fused_relu_0 --launch 0.0 --run {run}",)


def test_next_command_of_a_host_of_its_own(tmp_path: Path) -> None:
    fields = {"host": "embedded", "command": ("./server", "--level", "9"), "pid": 1 << 22}
    verdict = judge(tmp_path, started(ITEM, ended=0), Exit(ExitKind.RUNNING), **fields)
    assert verdict
    assert verdict.next_commands[0] == "AOTI_DEBUG_LEVEL=1 ./server --level 9"


def test_the_level_is_replaced(tmp_path: Path) -> None:
    command = ("aoti-debug", "run", "m.pt2", "--level", "3", "--calls", "2")
    verdict = judge(tmp_path, started(ITEM, ended=0), SEGV, command=command)
    assert verdict
    assert verdict.next_commands[0] == "aoti-debug run m.pt2 --calls 2 --level 1"


def test_an_error_code_of_the_shim_is_no_error_of_the_device(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, ended=1, crumb_every=1)
    writer.launch_end(1, status=700)
    writer.fault(1, FaultDomain.SHIM, 700, "it failed")
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(0))
    assert verdict
    assert [launch.id for launch in verdict.suspects] == ["0.1"]
    assert "CUDA error" not in verdict.what
