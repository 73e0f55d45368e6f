"""The random numbers of a call, in the order of their seeds, handed to the operators of the exported program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from aoti_debug.compare.evaluate import functions
from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.drawn_numbers import DrawnNumbers
from aoti_debug.compare.evaluate.functions import NotEvaluableError
from aoti_debug.compare.protocol.request import ProgramRun
from aoti_debug.package import program_graphs
from aoti_debug.package.program_graphs import (
    FORMAT,
    MODEL,
    SEVERAL_SEEDS,
    Graph,
    Node,
    NodeKind,
    Reference,
    TensorType,
    ValueKey,
)

SEEDS = torch.tensor([11, 22])


def node(name: str, target: str, *args: Any, device: str = "cpu", shape: tuple[str, ...] = ("3",)) -> Node:
    return Node(name, NodeKind.CALL, target, args, types=(TensorType("float32", device, shape, ("1",)),))


def seeds(name: str = "seeds", count: int = 2, device: str = "cpu") -> Node:
    return node(name, SEVERAL_SEEDS, count, {"device": device}, device=device)


def drawing(index: int, maker: str = "seeds") -> tuple[Node, Node]:
    lookup = node(f"{maker}_{index}", functions.LOOKUP, {"node": maker}, index)
    return lookup, node(f"r_{maker}_{index}", functions.UNIFORM_OR_NORMAL, [3], {"node": lookup.name}, "rand")


def numbers(*nodes: Node) -> DrawnNumbers:
    reference = Reference(FORMAT, torch.__version__, (Graph("", MODEL, nodes, ()),))
    made = {ValueKey(n.name): SEEDS for n in nodes if n.target in program_graphs.SEEDS}
    return DrawnNumbers(reference, made, Arithmetic.EAGER, "cpu")


def expected(seed: int) -> torch.Tensor:
    args = [[3], torch.tensor(seed), "rand"]
    return functions.drawn(functions.UNIFORM_OR_NORMAL, args, "cpu", torch.float32)


RAND = node("rand", "aten.rand.default")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_draws_that_passes_have_moved(order: tuple[int, int]) -> None:
    drawn = numbers(seeds(), *drawing(order[0]), *drawing(order[1]))
    for seed in SEEDS.tolist():
        assert torch.equal(drawn.result(RAND, [[3]], {}), expected(seed))
    drawn.require_all_taken()
    with pytest.raises(NotEvaluableError, match="more often"):
        drawn.result(RAND, [[3]], {})


def test_one_that_is_left() -> None:
    drawn = numbers(seeds(), *drawing(0), *drawing(1))
    drawn.result(RAND, [[3]], {})
    with pytest.raises(NotEvaluableError, match="less often"):
        drawn.require_all_taken()


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ((seeds(), *drawing(1)), "not from every seed"),  # an operator whose result nothing reads was removed
        ((seeds(), *drawing(0)), "not from every seed"),
        ((seeds(), *drawing(0), *drawing(2)), "not from every seed"),
        ((seeds(), *drawing(0), *drawing(0)), "twice from seed 0"),
        ((seeds("a", 1), seeds("b", 1), *drawing(0, "a"), *drawing(0, "b")), "several groups of seeds"),
        ((node("r", functions.UNIFORM_OR_NORMAL, [3], 5, "rand"),), "of a kind that is not known"),
        ((node("permutation", "aten.randperm.default", 3),), r"with aten\.randperm\.default"),
    ],
)
def test_an_order_that_is_not_known(nodes: tuple[Node, ...], reason: str) -> None:
    with pytest.raises(NotEvaluableError, match=reason):
        numbers(*nodes)


def test_each_device_has_its_own_order() -> None:
    """One group of seeds of each: the numbers of a device are drawn in the order of the program, beside others."""
    drawn = numbers(
        seeds("there", 1, "cuda:0"), seeds("here", 2), *drawing(1, "here"), *drawing(0, "here"), *drawing(0, "there")
    )
    elsewhere = node("rand_1", "aten.rand.default", device="cuda:0")
    assert torch.equal(drawn.result(RAND, [[3]], {}), expected(11))
    assert drawn.result(elsewhere, [[3]], {}).shape == (3,)
    assert torch.equal(drawn.result(RAND, [[3]], {}), expected(22))
    drawn.require_all_taken()
    with pytest.raises(NotEvaluableError, match="more often"):
        drawn.result(node("rand_2", "aten.rand.default", device="cuda:1"), [[3]], {})


@pytest.mark.parametrize("train", [True, None])
def test_a_dropout_that_draws(train: bool | None) -> None:
    """torch draws without `train` too; its decomposition does not."""
    x = torch.ones(3)
    dropout = node("dropout", "aten.native_dropout.default")
    kept, mask = numbers(seeds(count=1), *drawing(0)).result(dropout, [x, 0.5, train], {})
    assert torch.equal(mask, expected(11) > 0.5)
    assert torch.equal(kept, mask * 2.0)
    named = numbers(seeds(count=1), *drawing(0)).result(dropout, [x], {"p": 0.5, "train": train})
    assert torch.equal(named[1], mask)


def test_a_size_that_is_a_symbol() -> None:
    size = Node("size", NodeKind.CALL, "aten.sym_size.int", ({"node": "x"}, 0), size="s7")
    lookup, draw = drawing(0)
    draw = replace(draw, args=([{"node": "size"}], *draw.args[1:]))
    x = Node("x", NodeKind.INPUT, types=(TensorType("float32", "cpu", ("s7",), ("1",)),))
    reference = Reference(FORMAT, torch.__version__, (Graph("", MODEL, (x, seeds(count=1), size, lookup, draw), ()),))
    made = {ValueKey("seeds"): SEEDS}
    run = ProgramRun(graph="", function=MODEL, inputs=(), outputs=(), symbols={"s7": 3})
    drawn = DrawnNumbers(reference, made, Arithmetic.EAGER, "cpu", run)
    assert torch.equal(drawn.result(RAND, [[3]], {}), expected(11))
    with pytest.raises(NotEvaluableError):
        DrawnNumbers(reference, made, Arithmetic.EAGER, "cpu").result(RAND, [[3]], {})
