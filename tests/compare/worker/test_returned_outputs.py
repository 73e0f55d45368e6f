"""The elements of outputs that rounding does not decide."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.exported_calls import ExportedCalls
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.protocol.measurement import FaultyOutput
from aoti_debug.compare.worker import returned_outputs
from aoti_debug.compare.worker.altered_program import WrongOutput
from aoti_debug.compare.worker.exported_program import undefined_results
from aoti_debug.compare.worker.returned_outputs import LeftOpen, keeps_choices, left_open, undecided
from aoti_debug.package.program_graphs import MODEL, Graph, Node, NodeKind, Reference
from aoti_debug.runs.run import saved_outputs
from tests.compare.evaluate.test_exported_calls import calls, exported

EXACT = torch.arange(8.0)


def left(folder: Path, actual: torch.Tensor, otherwise: torch.Tensor, *, is_random: bool = False) -> list[int]:
    """The elements that are left of an output that is wrong as a whole.

    Args:
        otherwise: what the program returns in float64 when operators round otherwise.
    """
    saved_outputs.save([EXACT.to(actual.dtype)], folder / "double")
    program = SimpleNamespace(call=lambda: [otherwise])
    source: Any = SimpleNamespace(
        is_random=is_random, run=SimpleNamespace(calls=1), program=lambda arithmetic, noise: program
    )
    outputs = {0: WrongOutput(actual, torch.ones(8, dtype=torch.bool))}
    found = undecided(source, outputs, saved_outputs.saved(folder / "double"))
    return found[0].elements.nonzero().reshape(-1).tolist() if 0 in found else []


def changed(*elements: int, by: float = 1.0) -> torch.Tensor:
    values = EXACT.clone()
    values[list(elements)] += by
    return values


def test_one_wrong_element_among_many_right_ones_is_left(tmp_path: Path) -> None:
    assert 3 in left(tmp_path, changed(3), EXACT + 1e-6)


def test_what_other_rounding_makes_about_as_far_off_is_not_left(tmp_path: Path) -> None:
    assert left(tmp_path, changed(3), changed(3)) == []
    assert left(tmp_path, changed(1, 2, 3, 4), changed(1, 2, 3)) == [], "most of them"
    assert {2, 3, 4} <= {*left(tmp_path, changed(1, 2, 3, 4), changed(1))}
    assert 1 not in left(tmp_path, changed(1, 2, 3, 4), changed(1))


def test_random_numbers_are_not_moved(tmp_path: Path) -> None:
    assert 3 in left(tmp_path, changed(3), changed(3), is_random=True)


def test_a_number_in_the_place_of_a_nan_is_left_whatever_rounding_moves(tmp_path: Path) -> None:
    actual = changed(1, 2, 3, 4)
    actual[6] = torch.nan
    assert left(tmp_path, actual, changed(1, 2, 3, 4)).count(6) == 1


class Ordered(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, order = torch.sort(x)
        return values, order, torch.arange(4.0)[order]


class Half(nn.Module):
    """Memory of which one half is written."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        half = torch.empty_like(x)
        half[:2] = x[:2]
        return half, x.argmax()


def opened(module: nn.Module, x: Tensor, made: list[None] | None = None) -> LeftOpen:
    """What is left open; a member is added to `made` for each program that is called."""
    return left_open(source_of(module, x, made))


def source_of(module: nn.Module, x: Tensor, made: list[None] | None = None) -> Any:
    """The source of a program; a member is added to `made` for each one that is called."""
    program = exported(module, x)

    def make(_: Any) -> ExportedCalls:
        if made is not None:
            made.append(None)
        return calls(program, x)

    source: Any = SimpleNamespace(
        program=make,
        run=SimpleNamespace(calls=1),
        trials={},
        reference=SimpleNamespace(of_exported=SimpleNamespace(graphs=(calls(program, x).graph,))),
    )
    return source


def test_the_order_of_equal_elements_is_left_open() -> None:
    found = opened(Ordered(), torch.tensor([3.0, 1.0, 3.0, 2.0]))
    (operator,) = found.operators
    assert operator.outputs == (1, 2)
    assert found.following == {2}
    assert operator.seen.startswith("leaves open which of equal elements comes first: with another choice, in eager, ")
    eager = torch.tensor([1, 3, 0, 2])
    assert found.has(1, torch.tensor([1, 3, 2, 0]), eager)
    assert not found.has(1, torch.tensor([3, 1, 0, 2]), eager), "another element"
    assert not found.has(1, torch.tensor([1, 3, 2, 2]), eager), "one of them twice"
    assert not found.has(1, torch.tensor([1, 3, 2, 4]), eager), "out of bounds"
    assert found.has(2, torch.tensor([1.0, 3.0, 2.0, 0.0]), eager.float())
    assert found.has(2, torch.tensor([1.0, 3.0 + 1e-6, 2.0, 0.0]), eager.float()), "rounding, beside a choice"
    assert not found.has(2, torch.tensor([1.0, 3.01, 2.0, 0.0]), eager.float())
    assert not found.has(2, torch.tensor([1.0, torch.nan, 2.0, 0.0]), eager.float())
    assert not found.has(2, torch.tensor([1.0, 9.0, 0.0, 2.0]), eager.float())
    assert not found.has(0, torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 2.0, 3.0, 3.0]))


def test_an_order_of_different_elements_is_not_open() -> None:
    made: list[None] = []
    assert not opened(Ordered(), torch.arange(4.0), made).operators
    assert len(made) == 3, "twice as it is, once with other choices"


def test_what_is_in_memory_that_nothing_writes_is_left_open() -> None:
    found = opened(Half(), torch.ones(4))
    eager = torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert found.has(0, torch.tensor([1.0, 1.0, 7.0, torch.nan]), eager)
    assert not found.has(0, torch.tensor([2.0, 1.0, 0.0, 0.0]), eager)
    assert not found.has(1, torch.tensor(2), torch.tensor(0)), "argmax chooses the first"
    assert not found.following, "float64 says nothing about such memory"


def test_memory_that_was_tried_before_is_not_tried_again() -> None:
    made: list[None] = []
    source = source_of(Half(), torch.ones(4), made)
    assert [result.outputs for result in undefined_results(source, source.program(Arithmetic.EAGER))] == [(0,)]
    called = len(made)
    assert left_open(source).changed.keys() == {0}
    assert len(made) == called


@pytest.mark.parametrize(
    ("exported_by", "lowered_by", "keeps"),
    [("aten.sort.default",) * 2 + (True,), ("aten.topk.default", "aten.sort.default", False), ("", "", True)],
)
def test_a_graph_that_chooses_by_other_operators_may_choose_others(
    exported_by: str, lowered_by: str, keeps: bool
) -> None:
    exported, lowered = (
        Graph("", MODEL, tuple(Node("a", NodeKind.CALL, name) for name in (of, "aten.argmax.default") if name), ())
        for of in (exported_by, lowered_by)
    )
    assert keeps_choices(Reference(1, "", (lowered,), exported=(exported,))) is keeps
    assert not keeps_choices(Reference(1, "", (lowered,)))


@pytest.mark.parametrize(("kept", "says_so"), [({0}, True), (set(), False)])
def test_the_graph_of_the_kernels_is_called_right_only_where_float64_was_seen_to_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: set[int], says_so: bool
) -> None:
    monkeypatch.setattr(returned_outputs, "_with_other_rounding", lambda _: iter([[EXACT]]))
    saved_outputs.save([EXACT], tmp_path)
    far = OutputError(index=0, dtype="float32", elements=8, different=8, relative=1.0, double=1.0, eager_double=0.0)
    source: Any = None
    _, faulty = returned_outputs._unexplained(source, {0: far}, saved_outputs.saved(tmp_path), kept)
    assert isinstance(faulty, FaultyOutput)
    assert faulty.fault.startswith("is far from what the exported program returns")
    assert ("the graph of the kernels gives what that does in float64" in faulty.fault) is says_so
