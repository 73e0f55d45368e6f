"""The calls that the exported program is to make, from a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from aoti_debug.compare.compare_run import reference_of
from aoti_debug.compare.protocol.request import ExportedRun, GivenTensors
from aoti_debug.compare.regions.program_calls import exported_run
from aoti_debug.compare.regions.regions import find_regions
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference
from aoti_debug.runs.rundir.load_tensors import load_file
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.compare.chains import KIND
from tests.triage.recorder import Recorder


def test_the_weights_are_those_that_launches_were_passed(saved: Callable[[str], RunDir], tmp_path: Path) -> None:
    run = saved("mixed")
    reference, _ = reference_of(run)
    calls = exported_run(run, reference, find_regions(run, reference), tmp_path)
    assert calls is not None
    assert (calls.calls, calls.returned) == (1, str(tmp_path))
    assert calls.last is not None
    assert (calls.last.call, calls.last.outputs) == (0, ())
    names = {constant.fqn: constant.name for constant in run.manifest.constants if constant.fqn}
    assert calls.weights
    for weight in (weight for weight in calls.weights if not weight.is_view):
        passed = next(a for launch in run.launches for a in launch.args if a.name == names[weight.name])
        assert passed.layout is not None
        assert tuple(load_file(Path(weight.path)).shape) == passed.layout.shape


def test_a_package_without_a_graph(saved: Callable[[str], RunDir], tmp_path: Path) -> None:
    run = saved("mixed")
    reference, _ = reference_of(run)
    regions = find_regions(run, reference)
    assert exported_run(run, replace(reference, graphs=(), exported=()), regions, tmp_path) is None
    alone = exported_run(run, replace(reference, graphs=()), regions, tmp_path)
    assert alone is not None
    assert (alone.calls, alone.returned, alone.last) == (1, str(tmp_path), None)


W = torch.arange(4.0)
GRAPH = Graph(
    "",
    MODEL,
    (
        Node("x", NodeKind.INPUT, types=(KIND,)),
        Node("zero", NodeKind.WEIGHT, "0", types=(KIND,)),
        Node("w", NodeKind.WEIGHT, "w", types=(KIND,)),
        Node("sin", NodeKind.CALL, "aten.sin.default", ({"node": "w"},), types=(KIND,)),
        Node("output", NodeKind.OUTPUT, "output", ([{"node": "sin"}],)),
    ),
    (),
)


def calls_of(folder: Path, *launches: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]) -> ExportedRun:
    """The calls of a run whose launches read and write tensors; one of the name "w_..." is a view of the weight w."""
    recorder = Recorder(folder, inputs=("x",), weights=("w",))
    recorder.journal.call_begin()
    for reads, writes in launches:
        recorder.launch("cpp_fused_0", reads, writes)
    recorder.journal.call_end(launches=len(launches))
    recorder.journal.run_end()
    run = recorder.run()
    for launch in run.launches:
        vars(launch)["args"] = [replace(a, spec=replace(a.spec, base=a.name.partition("_")[0])) for a in launch.args]
    reference = Reference(FORMAT, torch.__version__, (GRAPH,))
    calls = exported_run(run, reference, find_regions(run, reference), folder)
    assert calls is not None
    return calls


def test_a_weight_that_was_overwritten_through_a_view(tmp_path: Path) -> None:
    """What is passed as a whole afterwards is not what the program began with."""
    calls = calls_of(tmp_path, ({"w_row": W}, {"buf0": W}), ({}, {"w_other": W + 1}), ({"w": W + 1}, {"buf1": W}))
    (weight,) = calls.weights
    assert weight.is_view
    assert torch.equal(load_file(Path(weight.path)), W)
    (weight,) = calls_of(tmp_path / "whole", ({"w_row": W}, {"buf0": W}), ({"w": W}, {"buf1": W})).weights
    assert not weight.is_view


def test_what_no_launch_writes(tmp_path: Path) -> None:
    """A weight that has a number for a name is no input."""
    calls = calls_of(tmp_path, ({"x": W, "w": W}, {"buf0": W}))
    assert calls.untouched == GivenTensors(("0", "w"), (0,))
    assert calls_of(tmp_path / "written", ({"x": W}, {"w_row": W})).untouched == GivenTensors(("0",), (0,))
