"""The state of a model over several calls: one that never advances, or advances twice, is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.compare.compare import CompareOptions, compare
from aoti_debug.compare.compare_run import reference_of
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.measure.state_change import judged_by_double, judged_by_noise, lost_change, state_change
from aoti_debug.compare.protocol.measurement import Advance, StateChange
from aoti_debug.compare.protocol.request import ExportedRun, GivenTensors
from aoti_debug.compare.regions.program_calls import exported_run
from aoti_debug.compare.regions.regions import find_regions
from aoti_debug.compare.text import comparison_lines, state_text
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference
from aoti_debug.runs.rundir.load_tensors import load_file
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.compare.chains import KIND
from tests.compare.stateful import Builder, dropped, exported, repeated
from tests.triage.recorder import Recorder

BEFORE = torch.tensor([1.0, 2.0, -3.0])


@pytest.mark.parametrize(
    ("after", "expected", "advance"),
    [
        ([1.5, 2.5, -2.5], [1.5, 2.5, -2.5], Advance.RIGHT),
        ([1.5, 2.5001, -2.5], [1.5, 2.5, -2.5], Advance.RIGHT),
        ([1.0, 2.0, -3.0], [1.5, 2.5, -2.5], Advance.NOT_AT_ALL),
        ([2.0, 3.0, -2.0], [1.5, 2.5, -2.5], Advance.TWICE),
        ([9.0, 2.5, -2.5], [1.5, 2.5, -2.5], Advance.OTHERWISE),
        ([1.0, 2.0, -3.0], [1.0, 2.0, -3.0], Advance.RIGHT),
        ([1.0, 2.0, -3.0], [1.0000001, 2.0, -3.0], Advance.RIGHT),
        ([float("nan"), 2.5, -2.5], [float("nan"), 2.5, -2.5], Advance.RIGHT),
        ([float("nan"), 2.5, -2.5], [1.5, 2.5, -2.5], Advance.OTHERWISE),
        ([float("inf"), 2.5, -2.5], [1.5, 2.5, -2.5], Advance.OTHERWISE),
        ([1.5, 2.5, -2.5], [float("nan"), 2.5, -2.5], Advance.OTHERWISE),
        ([float("-inf"), 2.5, -2.5], [float("inf"), 2.5, -2.5], Advance.OTHERWISE),
        ([1.0, 2.0, -3.0], [float("inf"), 2.0, -3.0], Advance.NOT_AT_ALL),
    ],
)
def test_how_a_state_changes(after: list[float], expected: list[float], advance: Advance) -> None:
    change = state_change("mean", 0, "0.1", BEFORE, torch.tensor(after), torch.tensor(expected))
    assert change.advance is advance


@pytest.mark.parametrize(
    ("after", "exact", "noisy", "advance"),
    [
        (3.0, 1.0, [1.5, 0.4], Advance.RIGHT),  # what is left where numbers cancel: eager was right by chance
        (4.0, 1.0, [1.5, 0.4], Advance.NOT_AT_ALL),
        (3.0, 1.0, [], Advance.NOT_AT_ALL),
        (True, False, [False, True], Advance.RIGHT),  # a comparison of equal numbers
        (True, False, [False, False], Advance.NOT_AT_ALL),
        (4, 3, [3, 4], Advance.RIGHT),
        (4, 3, [], Advance.NOT_AT_ALL),
    ],
)
def test_a_state_that_rounding_decides_is_not_wrong(
    after: float, exact: float, noisy: list[float], advance: Advance
) -> None:
    change = StateChange(name="best", call=1, launch="0.1", advance=Advance.NOT_AT_ALL, change=1.0, difference=2.0)
    both = torch.tensor(after), torch.tensor(float(exact), dtype=torch.float64)
    judged = judged_by_noise(change, *both, [torch.tensor(float(value), dtype=torch.float64) for value in noisy])
    assert judged.advance is advance


def test_nan_in_a_state_is_wrong_however_far_it_moves() -> None:
    change = StateChange(
        name="mean", call=1, launch="0.1", advance=Advance.OTHERWISE, change=1.0, difference=0.0, misplaced=1
    )
    after, exact = torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 1.0]).double()
    assert judged_by_noise(change, after, exact, [exact * 2]).advance is Advance.OTHERWISE


@pytest.mark.parametrize(
    ("after", "eager", "exact", "advance"),
    [
        (1.8e-7, 0.0, 1e-17, Advance.OTHERWISE),  # eager is right
        (1.8e-7, 1.2e-7, 1e-17, Advance.RIGHT),  # what is left where numbers cancel
        (3.0, 1.0, 1.0, Advance.OTHERWISE),
        (1.0000001, 1.5, 1.0, Advance.RIGHT),  # nearer to float64 than eager
        (float("nan"), 1.5, 1.0, Advance.OTHERWISE),
        (float("nan"), 1.5, float("nan"), Advance.RIGHT),
        (float("inf"), float("inf"), 1.0, Advance.RIGHT),
        (float("inf"), 1.5, 3.4e38, Advance.RIGHT),  # it may overflow
        (float("inf"), 1.5, -3.4e38, Advance.OTHERWISE),
    ],
)
def test_float64_decides_what_rounding_explains(after: float, eager: float, exact: float, advance: Advance) -> None:
    change = StateChange(name="err", call=0, launch="0.0", advance=Advance.OTHERWISE, change=1.0, difference=1.0)
    run, program = torch.tensor([after]), torch.tensor([eager])
    assert judged_by_double(change, run, program, torch.tensor([exact], dtype=torch.float64)).advance is advance


def test_elements_that_are_not_finite_are_said() -> None:
    change = state_change("mean", 0, "0.1", BEFORE, torch.tensor([1.5, torch.nan, torch.inf]), BEFORE + 0.5)
    assert change.misplaced == 2
    assert state_text(change).endswith("it differs by up to 0, 2 elements are NaN or infinite otherwise than there")


def test_what_the_program_overwrites_and_the_run_never_does() -> None:
    change = lost_change("input 0", BEFORE, BEFORE + 1)
    assert change is not None
    assert (change.name, change.advance, change.difference) == ("input 0", Advance.UNTOUCHED, 1.0)
    assert lost_change("input 0", BEFORE, BEFORE.clone()) is None


class Exchange(nn.Module):
    """Overwrites each input with the other one."""

    def forward(self, a: Tensor, b: Tensor) -> None:
        first = a.clone()
        a.copy_(b)
        b.copy_(first)


def test_inputs_are_compared_with_the_exported_program(tmp_path: Path) -> None:
    """Inductor may drop the copy of `a`: its own graph is wrong then, and the launch computes what that says."""
    a, b = torch.arange(4.0), torch.arange(4.0) + 10
    torch.export.save(torch.export.export(Exchange(), (a, b)), tmp_path / "model.pt2")
    found = compare(CompareOptions(model=tmp_path / "model.pt2", out=tmp_path / "compares"))
    torch.compile(Exchange())(a, b)
    is_wrong = not torch.equal(b, torch.arange(4.0))
    assert len(found.states) == 2
    assert [state.name for state in found.wrong_states] == (["input 1 (b)"] if is_wrong else [])


def test_a_counter() -> None:
    one, two = torch.tensor(1), torch.tensor(2)
    assert state_change("count", 0, "", one, one, two).advance is Advance.NOT_AT_ALL
    assert state_change("count", 0, "", one, torch.tensor(3), two).advance is Advance.TWICE


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[str], str]], Path]:
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as monkeypatch:
        builder = Builder(exported(folder / "model.pt2"), monkeypatch)
    return lambda edit: builder.build(folder / "edited.pt2", edit)


def compared(package: Path, folder: Path) -> Comparison:
    return compare(CompareOptions(model=package, calls=2, out=folder / "compares"))


@pytest.mark.slow
def test_a_state_that_advances(built: Callable[[Callable[[str], str]], Path], tmp_path: Path) -> None:
    comparison = compared(built(lambda wrapper: wrapper), tmp_path)
    assert comparison.is_clean
    changes = [(change.name, change.call, change.advance) for change in comparison.states]
    assert changes == [("mean", 0, Advance.RIGHT), ("mean", 1, Advance.RIGHT)]


@pytest.mark.slow
def test_a_state_that_advances_twice(built: Callable[[Callable[[str], str]], Path], tmp_path: Path) -> None:
    comparison = compared(built(repeated), tmp_path)
    assert comparison.first_wrong is not None
    assert [output.argument for output in comparison.first_wrong.outputs] == ["mean"]
    assert len(comparison.first_wrong.together_with) == 2
    # 0.9 · (0.9 · 0 + x) + x is no double change, except from zero
    assert [change.advance for change in comparison.wrong_states] == [Advance.OTHERWISE] * 2


@pytest.mark.slow
def test_a_state_that_never_advances(built: Callable[[Callable[[str], str]], Path], tmp_path: Path) -> None:
    comparison = compared(built(dropped), tmp_path)
    assert comparison.first_wrong is None
    assert not comparison.is_clean
    (first, second) = comparison.wrong_states
    assert (first.name, first.call, first.launch, first.advance) == ("mean", 0, "", Advance.UNTOUCHED)
    assert second.advance is Advance.UNTOUCHED
    wrong = next(line for line in comparison_lines(comparison, UNLIMITED) if line.startswith("WRONG"))
    assert wrong.startswith("WRONG state mean does not change in call 0: no launch writes it")


class Counter(nn.Module):
    """Inductor's passes take the counter for constant, so that it never gets beyond 1."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x * self.count


@pytest.mark.slow
def test_an_update_that_the_lowered_graph_has_lost(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(Counter(), (torch.randn(4),)), tmp_path / "model.pt2")
    comparison = compare(CompareOptions(model=tmp_path / "model.pt2", calls=2, out=tmp_path / "compares"))
    reference, _ = reference_of(comparison.run)
    folded = not any(node.target == "aten.add.Tensor" for node in reference.graphs[0].nodes)
    assert comparison.is_clean is not folded
    wrong = [(change.name, change.call, change.advance) for change in comparison.wrong_states]
    assert wrong == ([("count", 1, Advance.NOT_AT_ALL)] if folded else [])


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
