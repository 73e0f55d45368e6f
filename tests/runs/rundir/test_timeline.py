from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.abi import CallFlag, CallKind, FaultDomain, LaunchFlag, Phase, StatsFlag
from aoti_debug.base.errors import RunDirError
from aoti_debug.package.argument_values import Absent, Number, Tensor
from aoti_debug.package.manifest import CType, Form, Role
from aoti_debug.runs.rundir.launch import Argument, GridArgument, Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.rundir.timeline import Timeline
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor, triton_kernel

X, Y = tensor(8, 32), tensor(8, 64, data_ptr=0x9000)
SITES = (
    site("addmm", arg("buf0", Role.OUT), arg("x")),
    site("triton", arg("x"), arg("buf1", Role.OUT, Form.OUTPUT_SLOT)),
    site("last", arg("x")),
)
PACKAGE = make_manifest(*SITES, kernels=[triton_kernel("triton")])


def timeline(base: Path, journal: JournalWriter) -> Timeline:
    return open_run(run_directory(base, PACKAGE, journal)).timeline


def launch(base: Path, journal: JournalWriter) -> Launch:
    (only,) = timeline(base, journal).launches
    return only


@pytest.mark.parametrize(
    ("role", "form", "written"),
    [
        (Role.NONE, Form.TENSOR, False),
        (Role.IN, Form.TENSOR, False),
        (Role.OUT, Form.TENSOR, True),
        (Role.INOUT, Form.TENSOR, True),
        (Role.UNKNOWN, Form.TENSOR, True),
        (Role.NONE, Form.OUTPUT_SLOT, True),
    ],
)
def test_arguments_that_a_launch_may_write(role: Role, form: Form, written: bool) -> None:
    assert Argument(0, arg("x", role, form), X, X).written is written


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [(X, Y, Y), (X, Absent.UNSET, X), (Absent.UNSET, Y, Y), (Absent.NULL, Absent.NULL, None)],
)
def test_the_tensor_of_an_argument(before: Tensor | Absent, after: Tensor | Absent, value: Tensor | None) -> None:
    argument = Argument(0, arg("x"), before, after)
    assert argument.tensor == value
    assert argument.layout == (None if value is None else value.layout)


def test_the_tensors_of_a_launch_are_those_of_its_arguments(tmp_path: Path) -> None:
    journal = JournalWriter(level=2)
    journal.launch_begin(0, 1, X, Absent.UNSET)
    journal.launch_begin(1, 1, X, Y)
    journal.launch_end(1, {0: Absent.UNSET})
    journal.launch_begin(2, 1, Number(8, CType.I64))
    journal.launch_end(2, {0: Y})
    journal.tensor_stats(2, 0, Phase.AFTER, statistics(), layout=Y.layout)
    launches = timeline(tmp_path, journal).launches
    assert [launch.tensors() for launch in launches] == [[X, None], [X, Y], [Y, None]]
    for launch in launches:
        assert launch.tensors() == [argument.tensor for argument in launch.args]
        assert launch.tensors() == [launch.tensor(slot) for slot in range(2)]
    assert [launch.is_measured for launch in launches] == [False, False, True]


def test_the_layout_of_an_argument_without_an_address_is_that_of_its_statistics(tmp_path: Path) -> None:
    journal = JournalWriter(level=2)
    journal.launch_begin(0, 0, Absent.OPAQUE, Absent.OPAQUE)
    journal.tensor_stats(0, 0, Phase.BEFORE, None, flags=StatsFlag.UNINITIALISED)
    journal.tensor_stats(0, 0, Phase.AFTER, statistics(), layout=Y.layout)
    assert [argument.layout for argument in launch(tmp_path, journal).args] == [Y.layout, None]


def test_statistics_that_replays_left(tmp_path: Path) -> None:
    journal = JournalWriter(level=2)
    for call in (0, 1):
        journal.call_begin(call=call, flags=CallFlag.CAPTURING * call)
        journal.launch(0, 0, X, Y, call=call)
        journal.call_end(call=call)
    journal.tensor_stats(0, 0, Phase.BEFORE, statistics(), layout=X.layout, call=1, replay=(7, 8))
    journal.tensor_stats(0, 1, Phase.AFTER, statistics(n_nan=2), layout=Y.layout, call=1, replay=(8, 8))
    found = timeline(tmp_path, journal)
    assert [call.replays for call in found.calls] == [None, 8]
    eager, captured = found.launches
    assert [argument.stats for argument in eager.args] == [{}, {}]
    assert (eager.replay, captured.replay) == (None, 8)
    assert [(record.slot, record.phase) for record in captured.stats] == [(0, Phase.BEFORE), (1, Phase.AFTER)]
    assert eager.stats == ()
    read, written = captured.args
    assert (read.stats[Phase.BEFORE].replay, written.stats[Phase.AFTER].replay) == (7, 8)
    assert written.stats[Phase.AFTER].statistics == statistics(n_nan=2)


def test_values_that_were_not_recorded(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.launch(0, 0, Y)
    assert [(a.before, a.after) for a in launch(tmp_path, journal).args] == [(Y, Y), (Absent.OPAQUE, Absent.OPAQUE)]


@pytest.mark.parametrize(
    ("ends", "status", "flags", "faulty", "expected"),
    [
        (False, 0, 0, False, LaunchStatus.OPEN),
        (False, 0, 0, True, LaunchStatus.FAILED),
        (True, 0, 0, False, LaunchStatus.RETURNED),
        (True, 0, LaunchFlag.CRUMB, False, LaunchStatus.RETURNED),
        (True, 0, LaunchFlag.NOT_STARTED, False, LaunchStatus.NOT_STARTED),
        (True, 0, 0, True, LaunchStatus.FAILED),
        (True, 1, 0, False, LaunchStatus.FAILED),
        (True, -1, 0, False, LaunchStatus.FAILED),
    ],
)
def test_the_end_of_a_launch(
    tmp_path: Path, ends: bool, status: int, flags: int, faulty: bool, expected: LaunchStatus
) -> None:
    journal = JournalWriter()
    journal.launch_begin(0, 2, X)
    if faulty:
        journal.fault(0, FaultDomain.SHIM)
    begun = journal.time_ns
    if ends:
        journal.launch_end(0, status=status, flags=flags)
    found = launch(tmp_path, journal)
    assert found.status is expected
    assert found.returned == (status if ends else None)
    assert found.end_ns == (begun + 1000 if ends else None)
    assert found.breadcrumb is (flags == LaunchFlag.CRUMB)
    assert (found.fault is not None) is faulty


def test_calls(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.call_begin(0, CallKind.CONSTANT)
    journal.call_end(0, kind=CallKind.CONSTANT)
    journal.call_begin(0)
    journal.call_end(0, failed=True)
    journal.call_begin(1)
    calls = timeline(tmp_path, journal).calls
    assert [(str(call), call.ended, call.failed) for call in calls] == [
        ("c0", True, False),
        ("0", True, True),
        ("1", False, False),
    ]


def test_a_fault_at_the_end_of_a_call_is_that_of_no_launch(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.launch(0, 2, X)
    journal.fault(None, FaultDomain.SHIM)
    found = timeline(tmp_path, journal)
    assert [fault.launch for fault in found.faults] == [None]
    assert found.launches[0].fault is None


@pytest.mark.parametrize("ends", [False, True])
def test_the_end_of_a_run(tmp_path: Path, ends: bool) -> None:
    journal = JournalWriter()
    journal.launch(0, 2, X)
    if ends:
        journal.run_end()
    assert timeline(tmp_path, journal).ended is ends


def test_device_kernels_of_a_launch(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.launch_begin(0, 1, X, Absent.UNSET)
    journal.grid(0, 0, (4, 1, 1), 0x1000, 0x2000, 5, 7)
    journal.grid(0, 9, (2, 1, 1), 3)
    first, second = launch(tmp_path, journal).grids
    assert (first.kernel, second.kernel) == ("triton", "kernel 9")
    assert first.arguments[2:] == (
        GridArgument("xnumel", "int32_t", Number(5, CType.I32)),
        GridArgument("arg3", "", Number(7, CType.U64)),
    )
    assert second.arguments == (GridArgument("arg0", "", Number(3, CType.U64)),)
    assert launch(tmp_path / "again", journal).grid == first


def test_launches_with_a_device_kernel(tmp_path: Path) -> None:
    journal = JournalWriter()
    for number in (0, 1):
        journal.launch_begin(number, 1, X, Y)
    journal.grid(1, 0, (4, 1, 1))
    assert [launch.has_grids for launch in timeline(tmp_path, journal).launches] == [False, True]


def test_a_launch_without_a_device_kernel(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.launch(0, 2, X)
    assert launch(tmp_path, journal).grid is None


def test_a_launch_prints_without_its_records(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.launch(0, 2, X)
    found = launch(tmp_path, journal)
    assert repr(found) == f"Launch({found.id} {found.kernel}, returned)"


@pytest.mark.parametrize(("site_id", "fits"), [(2, True), (3, False)])
def test_a_site_of_another_package(tmp_path: Path, site_id: int, fits: bool) -> None:
    journal = JournalWriter()
    journal.launch(0, site_id, X)
    if fits:
        assert launch(tmp_path, journal).kernel == "last"
        return
    with pytest.raises(RunDirError, match="names site 3, but the manifest has 3"):
        launch(tmp_path, journal)


@pytest.mark.parametrize(("slots", "named"), [((0, 1), None), ((2,), 2), ((0, 1, 3, 2), 3)])
@pytest.mark.parametrize("kind", ["file", "statistics"])
def test_tensors_of_arguments_that_a_launch_does_not_have(
    tmp_path: Path, slots: tuple[int, ...], named: int | None, kind: str
) -> None:
    journal = JournalWriter(level=1)
    journal.launch_begin(0, 0, Y, X)
    for slot in slots:
        if kind == "file":
            journal.tensor_file(0, slot, Phase.BEFORE, "tensors/a")
        else:
            journal.tensor_stats(0, slot, Phase.BEFORE, statistics())
    if named is None:
        assert len(launch(tmp_path, journal).args) == 2
        return
    with pytest.raises(RunDirError) as caught:
        launch(tmp_path, journal)
    assert str(caught.value) == (
        f"the run is damaged: a tensor of argument {named} of launch 0.0, which has 2 arguments"
    )
