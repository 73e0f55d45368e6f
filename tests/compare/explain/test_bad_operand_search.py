"""The element of an operand that an operator cannot use, found in a graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aoti_debug.compare.explain.bad_operand_search import BadOperandSearch
from aoti_debug.compare.protocol.messages import BadOperand, BadSource, Computed, Operand
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey

INDEX = torch.tensor([[0, 3], [1, 9]])
TABLE = torch.zeros(4, 5)


def node(name: str) -> dict[str, str]:
    return {"node": name}


def call(name: str, target: str, *args: Any, dtype: str = "float32", mutates: tuple[str, ...] = ()) -> Node:
    kind = TensorType(dtype, "cpu", (), ())
    return Node(name, NodeKind.CALL, target, args, types=(kind,), mutates=mutates)


def first(
    values: dict[str, torch.Tensor],
    *calls: Node,
    unknown: tuple[Node, ...] = (),
    before: tuple[Node, ...] = (),
    recorded: dict[str, torch.Tensor] | None = None,
) -> BadOperand | None:
    """The bad operand of a launch that evaluates `calls`.

    Args:
        values: what the launch and those before it read.
        before: the nodes that launches before it evaluate.
        recorded: what those wrote.
    """
    inputs = tuple(Node(name, NodeKind.INPUT) for name in values)
    graph = Graph("", MODEL, (*inputs, *unknown, *before, *calls), ())
    upstream = {ValueKey(name): value for name, value in values.items()}
    known = upstream if recorded is None else {ValueKey(name): value for name, value in recorded.items()}
    reference = Reference(FORMAT, "2.13", (graph,))
    search = BadOperandSearch(reference, graph, known, Symbols(known={"s0": 7}), "cpu", upstream)
    return search.first("0.1", tuple(item.name for item in calls))


@pytest.mark.parametrize(
    ("target", "args", "dimension", "size"),
    [
        ("aten.index.Tensor", (node("table"), [node("index")]), 0, 4),
        ("aten.index.Tensor", (node("table"), [None, node("index")]), 1, 5),
        ("aten.index_put_.default", (node("table"), [node("index")], node("table")), 0, 4),
        ("aten.embedding.default", (node("table"), node("index")), 0, 4),
        ("aten._embedding_bag.default", (node("table"), node("index"), node("index")), 0, 4),
        ("aten.gather.default", (node("table"), -1, node("index")), 1, 5),
        ("aten.index_select.default", (node("table"), 1, node("index")), 1, 5),
        ("aten.scatter.src", (node("table"), 0, node("index"), node("table")), 0, 4),
        ("aten.scatter_add_.default", (node("table"), 0, node("index"), node("table")), 0, 4),
        ("aten.scatter_reduce.two", (node("table"), 1, node("index"), node("table"), "sum"), 1, 5),
    ],
)
def test_an_index_past_the_end(target: str, args: tuple[Any, ...], dimension: int, size: int) -> None:
    found = first({"table": TABLE, "index": INDEX}, call("use", target, *args))
    source = BadSource(node="index", element=3, index=(1, 1), value="9", instead="", alone=True)
    assert found == BadOperand(
        launch="0.1",
        node="use",
        operator=target,
        name="index",
        index=(1, 1),
        value=9,
        count=1,
        table="table",
        dimension=dimension,
        size=size,
        source=source,
    )


@pytest.mark.parametrize(
    ("target", "args", "value", "is_bad"),
    [
        ("aten.index.Tensor", (node("table"), [node("index")]), -4, False),
        ("aten.index.Tensor", (node("table"), [node("index")]), -5, True),
        ("aten.embedding.default", (node("table"), node("index")), -1, True),
        ("aten.gather.default", (node("table"), 0, node("index")), -1, True),
        ("aten.gather.default", (node("table"), 0, node("index")), 3, False),
    ],
)
def test_negative_indices(target: str, args: tuple[Any, ...], value: int, is_bad: bool) -> None:
    found = first({"table": TABLE, "index": torch.full((1, 5), value)}, call("use", target, *args))
    assert (found is not None) == is_bad


def test_a_mask_is_no_index() -> None:
    mask = torch.tensor([True, False, True, True])
    assert (
        first({"table": TABLE, "mask": mask}, call("use", "aten.index.Tensor", node("table"), [node("mask")])) is None
    )


def test_the_first_operator_that_fails_is_named() -> None:
    found = first(
        {"table": TABLE, "index": INDEX},
        call("good", "aten.remainder.Scalar", node("index"), 4, dtype="int64"),
        call("one", "aten.index.Tensor", node("table"), [node("good")]),
        call("two", "aten.index.Tensor", node("table"), [node("index")]),
    )
    assert found is not None
    assert found.node == "two"


def test_the_numbers_that_an_index_was_computed_from() -> None:
    found = first(
        {"table": TABLE, "ids": torch.tensor([[1], [3000]], dtype=torch.int32)},
        call("far", "aten.mul.Tensor", node("ids"), 1_000_000, dtype="int32"),
        call("flat", "aten.view.default", node("far"), [2], dtype="int32"),
        call("use", "aten.index.Tensor", node("table"), [node("flat")]),
    )
    assert found is not None
    assert (found.name, found.index, found.value, found.count) == ("flat", (0,), 1_000_000, 2)
    made = found.computed
    assert made == Computed(
        "far",
        "aten.mul.Tensor",
        "int32",
        (Operand(name="ids", index=(0, 0), value="1"), Operand(name="", value="1000000")),
        "1000000.0",
    )


@pytest.mark.parametrize(
    ("moves", "element"),
    [
        ((call("at", "aten.gather.default", node("mul"), 1, node("order"), dtype="int64"),), (1, 1)),
        ((call("at", "aten.slice.Tensor", node("mul"), 1, 1, 2, dtype="int64"),), (1, 1)),
        ((call("at", "aten.cat.default", [node("order"), node("mul")], 1, dtype="int64"),), (1, 1)),
        (
            (
                call("turned", "aten.permute.default", node("mul"), [1, 0], dtype="int64"),
                call("at", "aten.index.Tensor", node("turned"), [node("which")], dtype="int64"),
            ),
            (1, 1),
        ),
    ],
)
def test_an_index_that_was_moved_comes_from_what_computed_it(moves: tuple[Node, ...], element: tuple[int, int]) -> None:
    """As where a gather picks positions that a line before it computed."""
    start = torch.tensor([[0, 1], [1, 3]])
    order, which = torch.tensor([[0, 1], [0, 1]]), torch.tensor([1])
    computing = call("mul", "aten.mul.Tensor", node("start"), 3, dtype="int64")
    reading = call("read", "aten.index.Tensor", node("table"), [node("at")])
    table = torch.zeros(9, 5)
    found = first({"start": start, "table": table, "order": order, "which": which}, computing, *moves, reading)
    assert found is not None
    assert found.computed is not None
    assert (found.name, found.value, found.computed.node) == ("at", 9, "mul")
    assert found.computed.operands[0] == Operand(name="start", index=element, value="3")


def test_an_index_that_fills_a_padding_was_not_computed() -> None:
    """Its value could be the number of an element as well: here that of the last one of `mul`."""
    reading = call("read", "aten.index.Tensor", node("table"), [node("at")])
    found = first(
        {"start": torch.zeros(3, 4, dtype=torch.int64), "table": torch.zeros(9, 5)},
        call("mul", "aten.mul.Tensor", node("start"), 3, dtype="int64"),
        call("at", "aten.constant_pad_nd.default", node("mul"), [2, 0], 11, dtype="int64"),
        reading,
    )
    assert found is not None
    assert (found.name, found.value, found.computed) == ("at", 11, None)


def test_what_overflowed() -> None:
    found = first(
        {"table": TABLE, "ids": torch.tensor([3000], dtype=torch.int32)},
        call("far", "aten.mul.Tensor", node("ids"), 1_000_000, dtype="int32"),
        call("use", "aten.index.Tensor", node("table"), [node("far")]),
    )
    assert found is not None
    assert found.computed is not None
    assert (found.value, found.computed.exact) == (-1294967296, "3000000000.0")


def test_a_table_that_is_not_known_has_its_size() -> None:
    rows = Node("rows", NodeKind.INPUT, types=(TensorType("float32", "cpu", ("s0", "2"), ()),))
    use = call("use", "aten.index.Tensor", node("rows"), [node("index")])
    found = first({"index": INDEX}, use, unknown=(rows,))
    assert found is not None
    assert (found.table, found.size) == ("rows", 7)


def test_a_divisor_of_zero() -> None:
    values = {"total": torch.arange(3), "size": torch.tensor([1, 0, 2])}
    division = call("pages", "aten.div.Tensor_mode", node("total"), node("size"), dtype="int64")
    found = first(values, division)
    source = BadSource(node="size", element=1, index=(1,), value="0", instead="", alone=True)
    assert found == BadOperand(
        launch="0.1",
        node="pages",
        operator="aten.div.Tensor_mode",
        name="size",
        index=(1,),
        value=0,
        count=1,
        source=source,
    )
    assert first(values, call("ratio", "aten.div.Tensor", node("total"), node("size"))) is None


def test_a_divisor_of_zero_comes_from_an_input() -> None:
    values = {"total": torch.arange(40), "size": torch.arange(40) + 2}
    values["size"][22] = 1
    found = first(
        values,
        call("less", "aten.sub.Tensor", node("size"), 1, dtype="int64"),
        call("pages", "aten.remainder.Tensor", node("total"), node("less"), dtype="int64"),
    )
    assert found is not None
    assert found.source is not None
    assert (found.source.node, found.source.element, found.source.value) == ("size", 22, "1")
    assert found.source.alone


def test_the_smallest_integer_divided_by_minus_one() -> None:
    total, size = torch.tensor([5, -(2**63), 7]), torch.tensor([-1, -1, 2])
    division = call("pages", "aten.div.Tensor_mode", node("total"), node("size"), dtype="int64")
    found = first({"total": total, "size": size}, division)
    assert found is not None
    assert (found.index, found.value, found.dividend) == ((1,), -1, str(-(2**63)))
    assert first({"total": total[:1], "size": size[:1]}, division) is None


def test_an_index_is_followed_through_earlier_launches() -> None:
    """The launch reads the index from memory; launches before it made that of ids."""
    ids = torch.tensor([[1, 2], [1, 900], [0, 1]])
    far = (ids * 10).amax(-1)
    found = first(
        {"ids": ids},
        call("use", "aten.index.Tensor", node("table"), [node("top")]),
        unknown=(Node("table", NodeKind.INPUT, types=(TensorType("float32", "cpu", ("50", "2"), ()),)),),
        before=(
            call("scaled", "aten.mul.Tensor", node("ids"), 10, dtype="int64"),
            call("top", "aten.amax.default", node("scaled"), [-1], dtype="int64"),
        ),
        recorded={"top": far},
    )
    assert found is not None
    assert (found.name, found.index, found.value) == ("top", (1,), 9000)
    assert found.source is not None
    assert (found.source.node, found.source.element, found.source.index) == ("ids", 3, (1, 1))


def test_what_launches_wrote_is_taken_where_the_graph_computes_something_else() -> None:
    """A kernel that computed a wrong index: nothing is said of the inputs."""
    found = first(
        {"ids": torch.tensor([1, 2])},
        call("use", "aten.index.Tensor", node("table"), [node("scaled")]),
        unknown=(Node("table", NodeKind.INPUT, types=(TensorType("float32", "cpu", ("50", "2"), ()),)),),
        before=(call("scaled", "aten.mul.Tensor", node("ids"), 10, dtype="int64"),),
        recorded={"scaled": torch.tensor([10, 777])},
    )
    assert found is not None
    assert found.source == BadSource(node="scaled", element=1, index=(1,), value="777", instead="", alone=True)
