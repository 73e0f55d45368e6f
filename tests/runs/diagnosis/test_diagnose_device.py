from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.abi import FaultDomain, LaunchFlag, NoteCode
from aoti_debug.package.manifest import Kind, Manifest, Unrecognised
from aoti_debug.runs.diagnosis.verdict import Proof
from aoti_debug.runs.rundir.run_directory import GPU_CORE, find
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from tests import factories
from tests.factories import JournalWriter, arg, make_manifest, site
from tests.runs.diagnosis.judged_runs import (
    ABRT,
    CUDA,
    DEVICE,
    ILLEGAL,
    ITEM,
    NO_SLOT,
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


def test_the_launch_after_the_last_crumb_is_guilty_not_the_one_that_noticed(tmp_path: Path) -> None:
    writer = started(*[TRITON] * 8, ended=7, crumb_every=1)
    cuda_fault(writer, 7)
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(3))
    assert summary(verdict) == (ILLEGAL, Proof.CERTAIN, ["0.3"])
    assert verdict
    assert verdict.why == "the device had completed every launch before 0.3, and not 0.3"
    assert verdict.surfaced is not None
    assert verdict.surfaced.id == "0.7"


def test_a_call_that_is_not_recorded_may_have_failed_instead(tmp_path: Path) -> None:
    calls = (Unrecognised("run_impl", 7, "launch_one(stream);"), Unrecognised("run_impl", 9, "launch_other(stream);"))
    package = replace(CUDA, unrecognised=calls)
    writer = started(TRITON, TRITON, TRITON, crumb_every=1)
    cuda_fault(writer, None)
    verdict = judge(tmp_path / "one", writer, ABRT, package, crumbs=factories.crumbs(1))
    assert summary(verdict) == (ILLEGAL, Proof.LIKELY, ["0.1"])
    assert verdict
    assert verdict.why == (
        "the device had completed every launch before 0.1, and not 0.1;"
        " one of 2 calls that the build did not parse may have failed before it"
    )
    verdict = judge(tmp_path / "none", writer, ABRT, package, crumbs=factories.crumbs(3))
    assert verdict
    assert verdict.why.endswith("work outside of the package, or from one of 2 calls that the build did not parse")


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
    exit_ = Exit(ExitKind.FAULT, "AcceleratorError: x", RunStage.CALL, exception="AcceleratorError", code=700)
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


def side_streams(*waits_for: tuple[int, ...]) -> Manifest:
    """Launches on the stream of the call, on stream 1, and on that of the call again."""
    sites = [site(f"triton_{n}", arg("x"), kind=Kind.TRITON) for n in range(3)]
    numbered = [
        replace(s, stream=n % 2, waits_for=waits) for n, (s, waits) in enumerate(zip(sites, waits_for, strict=True))
    ]
    return make_manifest(*numbered, device="cuda")


@pytest.mark.parametrize(
    ("waits_for", "crumb_every", "proof", "guilty"),
    [
        (((), (0,), (1,)), 1, Proof.CERTAIN, ["0.1"]),
        (((), (0,), ()), 1, Proof.RANGE, ["0.1", "0.2"]),  # nothing orders the last one: it may have begun
        (((), (0,), (1,)), 100, Proof.RANGE, ["0.0", "0.1", "0.2"]),  # their ends are not known one by one
    ],
)
def test_a_launch_that_waits_for_another_stream_has_not_begun(
    tmp_path: Path, waits_for: tuple[tuple[int, ...], ...], crumb_every: int, proof: Proof, guilty: list[str]
) -> None:
    writer = JournalWriter(crumb_every=crumb_every)
    for launch in range(3):
        writer.launch(launch, launch, X, stream_slot=launch % 2)
    cuda_fault(writer, None)
    completed = (1, 0) if crumb_every == 1 else (0, 0)
    crumbs = factories.crumbs(*completed, every=crumb_every)
    verdict = judge(tmp_path, writer, RAISED, side_streams(*waits_for), crumbs=crumbs)
    assert summary(verdict)[1:] == (proof, guilty)
    assert verdict is not None
    assert ("; 0.2 on another stream waited for it" in verdict.why) is (proof is Proof.CERTAIN)


@pytest.mark.parametrize(("replays", "which"), [(0, "a replay"), (1000, "replay 1000")])
def test_a_fault_in_a_replay_of_a_captured_call(tmp_path: Path, replays: int, which: str) -> None:
    writer = started(TRITON, TRITON, crumb_every=1)
    writer.call_end(0, launches=2)
    writer.call_begin(1, stream_slot=1, flags=1)
    for launch in range(3):
        writer.launch(launch, TRITON, X, call=1, stream_slot=1)
    writer.call_end(1, launches=3)
    cuda_fault(writer, None)
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(2, 3, replays=replays))
    assert summary(verdict) == (ILLEGAL, Proof.CERTAIN, ["1.1"])
    assert verdict
    assert verdict.why.endswith(f"and not 1.1, in {which} of the CUDA graph that captured call 1")


def captured_without_crumbs() -> JournalWriter:
    writer = started(TRITON, TRITON, crumb_every=1)
    writer.call_end(0, launches=2)
    writer.note(NoteCode.CRUMBS_OFF, "no breadcrumbs in a CUDA graph: too many calls of this run were captured")
    writer.call_begin(1, stream_slot=NO_SLOT, flags=1)
    writer.launch(0, TRITON, X, call=1, stream_slot=NO_SLOT)
    writer.call_end(1, launches=1)
    cuda_fault(writer, None)
    return writer


def test_a_captured_call_without_crumbs_is_not_taken_for_one_that_did_not_complete(tmp_path: Path) -> None:
    verdict = judge(tmp_path, captured_without_crumbs(), RAISED, CUDA, crumbs=factories.crumbs(1))
    assert summary(verdict) == (ILLEGAL, Proof.CERTAIN, ["0.1"])


def test_a_replay_of_a_captured_call_without_crumbs_may_be_guilty(tmp_path: Path) -> None:
    verdict = judge(tmp_path, captured_without_crumbs(), RAISED, CUDA, crumbs=factories.crumbs(2))
    assert summary(verdict) == (ILLEGAL, Proof.NONE, [])
    assert verdict
    assert verdict.why.endswith(
        "or from a replay of the CUDA graph that captured call 1 "
        "(no breadcrumbs in a CUDA graph: too many calls of this run were captured)"
    )


def test_without_crumbs_every_launch_up_to_where_it_was_noticed_is_suspected(tmp_path: Path) -> None:
    writer = started(TRITON, TRITON, TRITON, ended=2)
    writer.note(NoteCode.CRUMBS_OFF, "no breadcrumbs: no room in /dev/shm")
    cuda_fault(writer, 2)
    verdict = judge(tmp_path, writer, RAISED, CUDA)
    assert summary(verdict) == (ILLEGAL, Proof.RANGE, ["0.0", "0.1", "0.2"])
    assert verdict
    assert "no room in /dev/shm" in verdict.why
    assert verdict.next_commands == ("CUDA_LAUNCH_BLOCKING=1 aoti-debug run m.pt2",)


@pytest.mark.parametrize("how", ["noted", "written"])
def test_breadcrumbs_go_on_where_the_driver_writes_a_core_dump(tmp_path: Path, how: str) -> None:
    """Of an H100: behind a kernel with an illegal access the breadcrumbs were those of kernels that had completed."""
    writer = started(TRITON, TRITON, TRITON, TRITON, ended=3, crumb_every=1)
    if how == "noted":
        writer.note(NoteCode.GPU_CORE, "with core dumps of the GPU on, it goes on behind a kernel that has failed")
    cuda_fault(writer, 3)
    verdict = judge(tmp_path, writer, RAISED, CUDA, crumbs=factories.crumbs(3))
    if how == "written":
        assert summary(verdict) == (ILLEGAL, Proof.CERTAIN, ["0.3"])
        (find(base=tmp_path) / GPU_CORE).write_bytes(b"ELF")
        verdict = rejudge(tmp_path)
    assert summary(verdict) == (ILLEGAL, Proof.RANGE, ["0.0", "0.1", "0.2", "0.3"])


def test_a_core_dump_ends_the_kernel_that_hangs(tmp_path: Path) -> None:
    """What the device did after the dump says nothing of the time before it."""
    writer = started(TRITON, TRITON, TRITON, ended=2, crumb_every=1)
    writer.note(NoteCode.GPU_CORE, "with core dumps of the GPU on, it goes on behind a kernel that has failed")
    verdict = judge(tmp_path, writer, TIMEOUT, CUDA, crumbs=factories.crumbs(1))
    assert verdict
    assert verdict.suspects[0].id == "0.1"
    (find(base=tmp_path) / GPU_CORE).write_bytes(b"ELF")
    again = rejudge(tmp_path)
    assert again
    assert (again.hangs, again.suspects[0].id) == (True, "0.0")


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
