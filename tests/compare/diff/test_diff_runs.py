"""Runs of made-up chains of operators against each other: every planted difference is found, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import Level
from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.compare.diff.budget import Budget
from aoti_debug.compare.diff.diff_runs import diff_runs
from aoti_debug.compare.diff.document import document
from aoti_debug.compare.diff.pairs import PairedBy, PairRelation
from aoti_debug.compare.diff.text import diff_lines, verdict
from aoti_debug.package.program_graphs import Node, NodeKind, TensorType
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from tests.compare.chains import attach, chain, reference
from tests.factories import JournalWriter
from tests.triage.recorder import Recorder

ADD = ("aten.add.Tensor",) * 6


def test_equal_runs(tmp_path: Path) -> None:
    found = diff_runs(chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD))
    assert found.is_same
    assert (found.by, found.paired, found.same, found.first) == (PairedBy.LAUNCH, 6, 6, None)


@pytest.mark.parametrize("wrong", range(6))
def test_the_launch_that_parts_and_its_consequences(wrong: int, tmp_path: Path) -> None:
    found = diff_runs(chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, wrong=wrong))
    assert not found.is_same
    assert [item.launch.id for item in found.parted] == [f"0.{wrong}"]
    assert found.first == found.parted[0]
    assert [item.outcome for item in found.launches[1:]] == [PairRelation.CONSEQUENCE] * (5 - wrong)
    (tensor,) = found.parted[0].tensors
    assert tensor.elements is not None
    assert (tensor.name, tensor.elements.different, tensor.elements.max_absolute) == (f"buf{wrong}", 4, 1.0)


def test_hashes_alone_say_where_runs_part(tmp_path: Path) -> None:
    runs = []
    for name, added in (("a", 1), ("b", 2)):
        recorder = Recorder(tmp_path / name, inputs=("x",), hashes_only=True, journal=JournalWriter(level=Level.HASH))
        x = torch.arange(4.0)
        recorder.journal.call_begin()
        recorder.launch("cpp_fused_0", {"x": x}, {"buf0": x + 1})
        recorder.launch("cpp_fused_1", {"buf0": x + 1}, {"buf1": x + added})
        recorder.launch("cpp_fused_2", {"buf1": x + added}, {"buf2": x - added})
        recorder.journal.call_end(launches=3)
        runs.append(recorder.run())
    found = diff_runs(runs[0], runs[1])
    (parted,) = found.parted
    assert (parted.launch.id, found.same, found.not_recorded) == ("0.1", 1, 0)
    printed = diff_lines(found)
    assert "level hash" in printed[0]
    assert any(line.startswith("  buf1     it differs (level 1 saves it") for line in printed)
    assert diff_runs(runs[0], runs[0]).is_same


@pytest.mark.parametrize(("step", "wrong"), [(2, 0), (2, 2), (3, 1)])
def test_other_fusion(step: int, wrong: int, tmp_path: Path) -> None:
    """One launch of the second run does what several of the first one do."""
    found = diff_runs(chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, wrong=wrong, step=step))
    assert found.by is PairedBy.VALUE
    assert found.paired == 6 // step
    (parted,) = found.parted
    assert parted.launch.id == f"0.{wrong}"
    assert [other.id for other in parted.pair.counterparts] == [f"0.{step * (wrong + 1) - 1}"]
    assert found.only_b == ()
    assert len(found.only_a) == 6 - 6 // step


def test_fusion_in_the_first_run(tmp_path: Path) -> None:
    """What the first run never stores has no counterpart; the launch after it reads what is not known to be equal."""
    found = diff_runs(chain(tmp_path / "a", ADD, step=2), chain(tmp_path / "b", ADD, wrong=2))
    assert [launch.id for launch in found.only_b] == ["0.0", "0.2", "0.4"]
    assert found.first is not None
    assert found.first.launch.id == "0.3"
    assert found.first.outcome is PairRelation.INPUTS_UNKNOWN
    assert found.first.notes == ("without a counterpart: buf2",)
    assert not found.is_same


def test_without_their_graphs_launches_are_paired_by_position(tmp_path: Path) -> None:
    runs = [chain(tmp_path / "a", ADD[:4]), chain(tmp_path / "b", ADD)]
    for run in runs:
        (run.path / "package.pt2").unlink()
    found = diff_runs(*runs)
    assert (found.by, found.paired, found.same) == (PairedBy.LAUNCH, 4, 4)
    assert [launch.id for launch in found.only_b] == ["0.4", "0.5"]
    assert not found.is_same


def record(base: Path, x: torch.Tensor, *, weight: float = 2.0, number: float = 1.0, save: bool = True) -> RunDir:
    recorder = Recorder(base, inputs=("x",), weights=("scale_weight",), save=save)
    recorder.journal.call_begin()
    scale = torch.full((1,), weight)
    recorder.launch("cpp_mul", {"x": x, "scale_weight": scale}, {"buf0": x * scale}, numbers={"n": number})
    recorder.launch("cpp_neg", {"buf0": x * scale}, {"buf1": -x * scale * number})
    recorder.journal.call_end(launches=2)
    recorder.journal.run_end()
    return recorder.run()


X = torch.arange(4.0)


def test_other_inputs_and_weights(tmp_path: Path) -> None:
    found = diff_runs(record(tmp_path / "a", X), record(tmp_path / "b", X + 1, weight=3.0))
    assert [item.name for item in found.inputs] == ["x", "scale.weight"]
    assert [item.outcome for item in found.launches] == [PairRelation.CONSEQUENCE] * 2
    assert not found.parted
    assert not found.is_same


def test_other_numbers_are_told(tmp_path: Path) -> None:
    found = diff_runs(record(tmp_path / "a", X), record(tmp_path / "b", X, number=3.0))
    assert [item.launch.id for item in found.parted] == ["0.1"]
    assert found.launches[0].notes == ()
    first = diff_runs(record(tmp_path / "c", X), record(tmp_path / "d", X + 1, number=3.0)).launches[0]
    assert first.notes == ("other numbers were passed to it: n",)


def test_hashes_are_enough_to_say_where(tmp_path: Path) -> None:
    found = diff_runs(record(tmp_path / "a", X, save=False), record(tmp_path / "b", X, number=3.0))
    (parted,) = found.parted
    assert parted.tensors[0].elements is None
    assert parted.tensors[0].reason == f"level 1 saves it; not saved by {found.a.path.name}"


def test_a_state_that_a_launch_overwrites_is_no_other_input(tmp_path: Path) -> None:
    def run(base: Path, step: float) -> RunDir:
        recorder = Recorder(base, inputs=("x",))
        recorder.journal.call_begin()
        changes = {"x": (X, X + step)}
        recorder.launch("cpp_add_", {}, {}, changes=changes)
        recorder.launch("cpp_neg", {"x": X + step}, {"buf0": -(X + step)})
        return recorder.run()

    found = diff_runs(run(tmp_path / "a", 1.0), run(tmp_path / "b", 2.0))
    assert found.inputs == ()
    assert [item.launch.id for item in found.parted] == ["0.0"]


def test_inputs_of_other_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"inputs of other sizes: x is \[4\] and \[6\]"):
        diff_runs(record(tmp_path / "a", X), record(tmp_path / "b", torch.arange(6.0)))


def test_a_run_without_values_is_refused(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "b")
    recorder.journal.call_begin()
    with pytest.raises(RunDirError, match="recorded no values: no launch"):
        diff_runs(record(tmp_path / "a", X), recorder.run())


def test_other_decompositions_are_paired_by_the_names_of_nodes(tmp_path: Path) -> None:
    other = ("aten.sin.default", *ADD[1:])
    first, second = chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, step=2)
    attach(second.path, reference(other))
    found = diff_runs(first, second)
    assert found.paired == 3
    assert found.is_same


def test_settings_that_differ(tmp_path: Path) -> None:
    a, b = record(tmp_path / "a", X), record(tmp_path / "b", X)
    other = replace(b, info=replace(b.info, torch_version="2.11.0", guards=True))
    named = {setting.name: (setting.a, setting.b) for setting in diff_runs(a, other).settings}
    assert named["torch that runs it"] == (a.info.torch_version or "", "2.11.0")
    assert named["guards"] == ("no", "yes")
    assert "device" not in named


def partial(base: Path, leftover: float, result: float) -> RunDir:
    """A launch that is recorded as one that reads the buffer which it fills."""
    recorder = Recorder(base, inputs=("x",))
    recorder.journal.call_begin()
    changes = {"buf0": (torch.full((4,), leftover), X + result)}
    recorder.launch("cpp_mean", {"x": X}, {}, changes=changes)
    recorder.launch("cpp_add_", {}, {}, changes={"buf0": (X + result, X + result + 1)})
    return recorder.run()


def test_runs_of_which_nothing_was_compared_are_not_called_the_same(tmp_path: Path) -> None:
    run = partial(tmp_path / "a", 0.0, 0.0)
    same = diff_runs(run, run)
    assert (same.is_compared, verdict(same)) == (True, "SAME")
    assert verdict(replace(same, same=1, not_recorded=1)) == "SAME as far as it was compared"
    nothing = replace(same, same=0, not_recorded=2)
    assert verdict(nothing) == "NOT COMPARED: no results of a launch are recorded in both runs"
    assert document(nothing)["same"] is False


def test_what_fresh_memory_held_is_no_input(tmp_path: Path) -> None:
    assert diff_runs(partial(tmp_path / "a", 1.0, 0.0), partial(tmp_path / "b", 2.0, 0.0)).is_same
    found = diff_runs(partial(tmp_path / "c", 1.0, 0.0), partial(tmp_path / "d", 2.0, 5.0))
    assert [item.launch.id for item in found.parted] == ["0.0"]
    assert [item.outcome for item in found.launches] == [PairRelation.PARTS, PairRelation.CONSEQUENCE]


def test_different_programs_are_refused(tmp_path: Path) -> None:
    first, second = chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD, step=2)
    graph = reference(ADD)
    whole, other = graph.graphs[0], TensorType("int64", "cpu", ("3",), ("1",))
    nodes = (replace(whole.nodes[0], types=(other,)), *whole.nodes[1:])
    attach(second.path, replace(graph, graphs=(replace(whole, nodes=nodes),)))
    with pytest.raises(UsageError, match=r"different programs: their input 0 is float32\[4\] and int64\[3\]"):
        diff_runs(first, second)
    more = (Node("y", NodeKind.INPUT, types=(other,)), *whole.nodes)
    attach(second.path, replace(graph, graphs=(replace(whole, nodes=more),)))
    with pytest.raises(UsageError, match="one has 1 input, the other 2 inputs"):
        diff_runs(first, second)


def test_programs_without_a_common_value_are_refused(tmp_path: Path) -> None:
    first, second = chain(tmp_path / "a", ADD[:1]), chain(tmp_path / "b", ADD[:2], step=2)
    other = reference(("aten.sin.default", "aten.cos.default")).graphs[0]
    renamed = tuple(replace(node, name=f"n{at}", args=()) if at else node for at, node in enumerate(other.nodes))
    held = tuple(replace(value, node=renamed[at + 1].name) for at, value in enumerate(other.buffers))
    attach(second.path, replace(reference(ADD), graphs=(replace(other, nodes=renamed, buffers=held),)))
    with pytest.raises(UsageError, match="no launch of one run computes what a launch of the other does"):
        diff_runs(first, second)


def test_other_kernels_without_a_graph_are_not_said_to_compute_something_else(tmp_path: Path) -> None:
    first, second = chain(tmp_path / "a", ADD), record(tmp_path / "b", X)
    with pytest.raises(UsageError, match="of the other; launches are not paired by value: ") as raised:
        diff_runs(first, second)
    assert "computes" not in str(raised.value)
    assert raised.value.hint.startswith("a package that aoti-debug has built from an exported program holds its graph")


def test_an_output_without_a_counterpart_is_not_called_the_same(tmp_path: Path) -> None:
    first, second = chain(tmp_path / "a", ADD, step=4), chain(tmp_path / "b", ADD, step=2)
    named = replace(second, manifest=replace(second.manifest, outputs=("buf5",)))
    found = diff_runs(first, named)
    assert not found.launches
    assert found.unpaired_outputs == ("buf5 of 0.2",)
    assert not found.is_same
    assert diff_lines(found)[-1] == "NOT COMPARED to the end"
    assert Budget().excesses(found) == ("buf5 of 0.2: an output without a counterpart",)


def test_a_run_that_did_not_end_well_is_not_called_the_same(tmp_path: Path) -> None:
    first, second = chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD)
    crashed = replace(second, info=replace(second.info, exit=Exit(ExitKind.FAULT, "SIGSEGV")))
    found = diff_runs(first, crashed)
    assert found.unfinished == ("run b did not end well: fault",)
    assert not found.is_same
    assert Budget().excesses(found) == found.unfinished


def test_a_package_that_was_rebuilt_leaves_the_positions(tmp_path: Path) -> None:
    first, second = chain(tmp_path / "a", ADD), chain(tmp_path / "b", ADD[:4])
    (first.path / "package.pt2").unlink()
    found = diff_runs(first, second)
    assert found.by is PairedBy.LAUNCH
    assert found.notes[0].startswith("launches are not paired by value: the package of run")
