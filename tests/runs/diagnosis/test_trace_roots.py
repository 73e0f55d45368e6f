from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import CallKind, Phase, StatsFlag
from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Allocation, Arg, Constant, Role, Site
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.special_values import Occurrence, Special
from aoti_debug.runs.diagnosis.trace_roots import ResultOperands, Root, RootKind, RootSearch
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor
from tests.triage.recorder import Recorder

NAN = float("nan")


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)


def roots_of(run: RunDir, launch: str, argument: str, special: Special = Special.NAN) -> list[Root]:
    found = run.launch(launch).argument(argument)
    assert found is not None
    return RootSearch(Dataflow(run)).trace([Occurrence(run.launch(launch), found, special)])


def test_roots_are_ordered_by_time_those_that_came_in_first(tmp_path: Path) -> None:
    """A launch that reads NaN from an input and from memory, and one that produced it later."""
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf9",))
    recorder.launch("first", {"arg0": values(NAN)}, {"buf0": values(NAN)})
    recorder.launch("second", {"arg1": values(1)}, {"buf1": values(NAN)})
    recorder.launch("sum", {"buf1": values(NAN), "buf0": values(NAN)}, {"buf9": values(NAN)})
    found = roots_of(recorder.run(), "0.2", "buf9")
    assert [(root.kind, root.occurrence.launch.id, root.occurrence.argument.name) for root in found] == [
        (RootKind.EXTERNAL, "0.0", "arg0"),
        (RootKind.PRODUCED, "0.1", "buf1"),
    ]
    assert [[step.argument.name for step in root.path] for root in found] == [
        ["arg0", "buf0", "buf9"],
        ["buf1", "buf9"],
    ]


BAD = statistics(n_nan=1)
HERE, ELSEWHERE = tensor(4, data_ptr=0x1000), tensor(4, data_ptr=0x2000)


@pytest.mark.parametrize(
    ("folded", "name", "address", "kind", "launch"),
    [
        (True, "w", HERE, RootKind.PRODUCED, "c0.0"),
        (True, "w", ELSEWHERE, RootKind.UNEXPLAINED, "0.0"),
        (True, "w", tensor(4, data_ptr=0), RootKind.UNEXPLAINED, "0.0"),
        (True, "other", HERE, RootKind.UNEXPLAINED, "0.0"),
        (False, "w", HERE, RootKind.EXTERNAL, "0.0"),
    ],
)
def test_a_folded_weight_is_followed_to_the_launch_that_computed_it(
    tmp_path: Path, folded: bool, name: str, address: Tensor, kind: RootKind, launch: str
) -> None:
    fold = site("fold", arg("source"), arg("result", Role.OUT))
    use = site("use", arg("w"), arg("buf0", Role.OUT))
    constant = Constant(name, "l.weight", "float32", (4,), (1,), folded)
    manifest = replace(make_manifest(fold, use), constants=(constant,), outputs=("buf0",))
    journal = JournalWriter(level=2)
    journal.launch_begin(0, 0, tensor(4, data_ptr=0x7000), HERE, kind=CallKind.CONSTANT)
    journal.launch_end(0, kind=CallKind.CONSTANT)
    journal.tensor_stats(0, 1, Phase.AFTER, BAD, kind=CallKind.CONSTANT)
    journal.launch_begin(0, 1, address, tensor(4, data_ptr=0x9000))
    journal.tensor_stats(0, 0, Phase.BEFORE, BAD)
    journal.tensor_stats(0, 1, Phase.BEFORE, None, flags=StatsFlag.UNINITIALISED)
    journal.launch_end(0)
    journal.tensor_stats(0, 1, Phase.AFTER, BAD)
    run = open_run(run_directory(tmp_path, manifest, journal))
    (root,) = roots_of(run, "0.0", "buf0")
    assert (root.kind, root.occurrence.launch.id) == (kind, launch)


def write(*args: Arg) -> Site:
    return site("write", *args)


def operands(base: Path, maker: Site | None, reader: Site, result: str, allocated: tuple[str, ...] = ()) -> list[str]:
    """The operands of a result of `reader`. Its last argument lies where `maker` wrote; all have statistics before."""
    allocations = tuple(Allocation(name, line=1, guarded=True) for name in allocated)
    sites = [site_ for site_ in (maker, reader) if site_ is not None]
    manifest = replace(make_manifest(*sites), allocations=allocations, inputs=("x",))
    journal = JournalWriter(level=2)
    if maker is not None:
        journal.launch(0, 0, HERE)
    last = len(reader.args) - 1
    journal.launch_begin(1, len(sites) - 1, *([ELSEWHERE] * last), HERE)
    for slot, spec in enumerate(reader.args):
        unset = spec.role is Role.OUT
        journal.tensor_stats(
            1, slot, Phase.BEFORE, None if unset else statistics(), flags=StatsFlag.UNINITIALISED if unset else 0
        )
    journal.launch_end(1)
    run = open_run(run_directory(base, manifest, journal))
    launch = run.launches[-1]
    argument = launch.argument(result)
    assert argument is not None
    return [a.name for a in ResultOperands(manifest, Dataflow(run)).operands(launch, argument)]


OUT, CHANGED = arg("buf1", Role.OUT), arg("buf2", Role.INOUT)


def test_operands_of_an_operator(tmp_path: Path) -> None:
    """All that it reads; what it writes only counts if it had contents."""
    maker, reader = write(CHANGED), write(arg("x"), OUT, arg("x"), CHANGED)
    assert operands(tmp_path / "a", maker, reader, "buf1") == ["x", "buf2"]
    assert operands(tmp_path / "b", maker, reader, "buf2") == ["x", "buf2"]
    assert operands(tmp_path / "c", None, reader, "buf2") == ["x"]


@pytest.mark.parametrize(
    ("written", "changed", "allocated", "had_contents"),
    [
        (arg("buf2", Role.OUT), CHANGED, (), True),
        (arg("buf2", Role.OUT), CHANGED, ("buf2",), True),
        (arg("buf2_view", Role.OUT, base="buf2"), CHANGED, (), True),
        (arg("buf2", Role.OUT), arg("buf2_view", Role.INOUT, base="buf2"), (), True),
        (arg("buf7", Role.OUT), CHANGED, (), False),  # the memory's previous owner
        (arg("buf7", Role.OUT), CHANGED, ("buf2", "buf7"), False),
        (arg("buf7", Role.OUT), CHANGED, ("buf7",), True),  # a name for the same buffer
        (arg("buf7", Role.OUT), arg("buf2_view", Role.INOUT, base="buf2"), ("buf2",), False),
        (arg("buf7", Role.OUT), arg("buf2_view", Role.INOUT, base="buf3"), ("buf2_view",), True),
    ],
)
def test_buffers_that_had_contents_of_their_own(
    tmp_path: Path, written: Arg, changed: Arg, allocated: tuple[str, ...], had_contents: bool
) -> None:
    found = operands(tmp_path, write(written), write(arg("y"), changed), changed.name, allocated)
    assert found == (["y", changed.name] if had_contents else ["y"])


def test_an_input_that_a_launch_changes_had_contents(tmp_path: Path) -> None:
    assert operands(tmp_path, None, write(arg("y"), arg("x", Role.INOUT)), "x") == ["y", "x"]


def test_operands_without_statistics(tmp_path: Path) -> None:
    manifest = make_manifest(site("linear", arg("x"), arg("packed"), arg("y", Role.OUT)))
    journal = JournalWriter(level=2)
    journal.launch_begin(0, 0, HERE, tensor(4, data_ptr=0x3000), ELSEWHERE)
    journal.tensor_stats(0, 0, Phase.BEFORE, statistics())
    journal.tensor_stats(0, 2, Phase.BEFORE, None, flags=StatsFlag.UNINITIALISED)
    journal.launch_end(0)
    journal.tensor_stats(0, 2, Phase.AFTER, BAD)
    run = open_run(run_directory(tmp_path, manifest, journal))
    (launch,) = run.launches
    result = launch.argument("y")
    assert result is not None
    search = RootSearch(Dataflow(run))
    assert [a.name for a in search.operands(launch, result)] == ["x"]
    assert [a.name for a in search.unmeasured(launch, result)] == ["packed"]
