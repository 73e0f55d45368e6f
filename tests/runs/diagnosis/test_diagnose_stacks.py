from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from aoti_debug.base.abi import FaultDomain
from aoti_debug.base.native import crash_stacks
from aoti_debug.base.native.crash_stacks import Backtrace, Stack
from aoti_debug.base.native.frames import StackFrame
from aoti_debug.runs.diagnosis.verdict import Proof
from aoti_debug.runs.rundir.run_directory import find
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from tests import factories
from tests.factories import JournalWriter
from tests.runs.diagnosis.judged_runs import (
    ABRT,
    CPP,
    CUDA,
    ILLEGAL,
    PROXY,
    RAISED,
    SEGV,
    TIMEOUT,
    TRITON,
    X,
    cuda_fault,
    judge,
    rejudge,
    started,
    summary,
)

FRAME = StackFrame("ops::act(int)", "/t/libops.so", 1, "/src/ops.cpp", 9)


def caught(base: Path, thread: int, signal: str = "SIGSEGV") -> None:
    """Puts stacks beside an existing run: of two threads, one of which may have died."""
    write_stacks(base, Stack(thread, signal, None, (FRAME,)))


def write_stacks(base: Path, first: Stack) -> None:
    other = Stack(99, "", None, (StackFrame("ops::other(int)", "/t/libops.so", 1),))
    text = json.dumps({"format": 1, **asdict(Backtrace((first, other)))})
    (find(base=base) / crash_stacks.NAME).write_text(text)


def two_threads() -> JournalWriter:
    writer = JournalWriter()
    for thread in (1, 2):
        writer.thread = thread
        writer.call_begin(thread - 1)
        writer.launch_begin(0, CPP, X, call=thread - 1)
    return writer


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


@pytest.mark.parametrize(
    ("library", "proof"), [("/t/libtorch_cuda.so", Proof.LIKELY), ("/t/libgomp-a34b3233.so.1", Proof.CERTAIN)]
)
def test_the_signal_came_in_another_thread(tmp_path: Path, library: str, proof: Proof) -> None:
    """One of OpenMP works for the launch; that of NCCL, which watches collectives, does not."""
    judge(tmp_path, started(CPP, CPP, ended=1), ABRT)
    stack = Stack(7, "SIGABRT", None, (FRAME, StackFrame("start_thread", library, 1)))
    write_stacks(tmp_path, stack)
    verdict = rejudge(tmp_path)
    assert summary(verdict) == ("SIGABRT (Aborted)", proof, ["0.1"])
    assert verdict
    assert ("may have nothing to do with it" in verdict.why) is (proof is Proof.LIKELY)


RECORDING = (
    StackFrame("__memmove_avx_unaligned_erms", "/lib/x86_64-linux-gnu/libc.so.6", 1),
    StackFrame("aoti_debug::FlightRing::put(aoti_debug::FlightRoom const&)", "/t/model.wrapper.so", 2),
    StackFrame("std::vector<int>::reserve(unsigned long)", "/t/model.wrapper.so", 3),
    StackFrame("aoti_debug_launch_begin", "/t/model.wrapper.so", 4),
)
CALLING = StackFrame("aoti_debug::(anonymous namespace)::launch<int>(int)", "/t/model.wrapper.so", 5)


@pytest.mark.parametrize(
    ("frames", "proof"),
    [
        pytest.param((*RECORDING, CALLING), Proof.LIKELY, id="in the runtime"),
        pytest.param((StackFrame("cpp_fused_0", "/t/model.so", 1), CALLING, *RECORDING[1:]), Proof.CERTAIN, id="in it"),
        pytest.param((StackFrame("at::sum", "/t/libtorch_cpu.so", 1), *RECORDING), Proof.CERTAIN, id="in torch"),
        pytest.param((CALLING,), Proof.CERTAIN, id="where it is called"),
    ],
)
def test_a_launch_that_was_being_recorded_is_only_likely(
    tmp_path: Path, frames: tuple[StackFrame, ...], proof: Proof
) -> None:
    journal = started(CPP, CPP, ended=1)
    judge(tmp_path, journal, SEGV)
    write_stacks(tmp_path, Stack(journal.thread, "SIGSEGV", None, frames))
    verdict = rejudge(tmp_path)
    assert verdict
    assert ([launch.id for launch in verdict.suspects], verdict.proof) == (["0.1"], proof)
    assert ("; it was being recorded: an earlier launch may" in verdict.why) is (proof is Proof.LIKELY)


def test_an_abort_elsewhere_while_the_device_was_behind(tmp_path: Path) -> None:
    """NCCL's watchdog sees the error of the device before the thread that launches does."""
    judge(tmp_path, started(*[TRITON] * 4, ended=3, crumb_every=1), ABRT, CUDA, crumbs=factories.crumbs(2))
    write_stacks(tmp_path, Stack(7, "SIGABRT", None, (FRAME,)))
    assert summary(rejudge(tmp_path)) == ("SIGABRT (Aborted)", Proof.LIKELY, ["0.2"])


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
