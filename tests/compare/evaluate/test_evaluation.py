"""Evaluation of graphs over tensors, in each arithmetic."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.evaluate.functions import NotEvaluableError, is_random
from aoti_debug.compare.measure.choices import Choice, equal_choices, other_choice
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey


def typed(dtype: str, *shape: int) -> tuple[TensorType, ...]:
    return (TensorType(dtype, "cpu", tuple(map(str, shape)), ()),)


def graph(*nodes: Node, name: str = "") -> Graph:
    return Graph(name, MODEL, nodes, ())


def node(name: str) -> dict[str, str]:
    return {"node": name}


def call(name: str, target: str, *args: Any, mutates: tuple[str, ...] = (), dtype: str = "float32") -> Node:
    return Node(name, NodeKind.CALL, target, args, types=typed(dtype, 4), mutates=mutates)


def evaluate(arithmetic: Arithmetic, whole: Graph, values: dict[str, torch.Tensor], *others: Graph) -> Evaluation:
    evaluation = Evaluation(Reference(FORMAT, "2.13", (whole, *others)), whole, arithmetic, "cpu")
    for name, value in values.items():
        evaluation.set(ValueKey(name), value)
    for item in whole.nodes:
        if item.kind is NodeKind.CALL:
            evaluation.run(item)
    return evaluation


HALF = graph(
    Node("x", NodeKind.INPUT, types=typed("bfloat16", 4)),
    call("add", "aten.add.Tensor", node("x"), 256.0, dtype="bfloat16"),
    call("sub", "aten.sub.Tensor", node("add"), 256.0, dtype="bfloat16"),
    call("wide", "prims.convert_element_type.default", node("sub"), {"dtype": "float32"}),
)
SMALL = torch.tensor([0.125, 0.25, 0.375, 0.5], dtype=torch.bfloat16)


def test_each_arithmetic_rounds_as_it_should() -> None:
    eager = evaluate(Arithmetic.EAGER, HALF, {"x": SMALL})
    assert eager.value(ValueKey("sub")).dtype is torch.bfloat16
    assert eager.value(ValueKey("wide")).tolist() == [0, 0, 0, 0]
    kernel = evaluate(Arithmetic.KERNEL, HALF, {"x": SMALL})
    assert kernel.value(ValueKey("sub")).dtype is torch.float32
    assert kernel.value(ValueKey("wide")).tolist() == SMALL.tolist()
    double = evaluate(Arithmetic.DOUBLE, HALF, {"x": SMALL})
    assert double.value(ValueKey("wide")).dtype is torch.float64


COMPARISON = graph(
    Node("x", NodeKind.INPUT, types=typed("float32", 4)),
    call("half", "prims.convert_element_type.default", node("x"), {"dtype": "float16"}, dtype="float16"),
    call("kept", "aten.gt.Scalar", node("half"), 0.1, dtype="bool"),
)


def test_a_kernel_compares_numbers_before_rounding_with_a_rounded_number() -> None:
    """0.1 is 0.0999756 in float16."""
    values = {"x": torch.tensor([0.0999, 0.09998, 0.1, 0.1001])}
    kept = {a: evaluate(a, COMPARISON, values).value(ValueKey("kept")).tolist() for a in Arithmetic}
    assert kept[Arithmetic.EAGER] == [False, False, False, True]
    assert kept[Arithmetic.KERNEL] == [False, True, True, True]


def test_a_weight_that_the_reference_holds() -> None:
    weight = Node("bias", NodeKind.WEIGHT, "bias", types=typed("bfloat16", 2), value=(0.5, {"float": "-inf"}))
    whole = graph(weight)
    evaluation = Evaluation(Reference(FORMAT, "2.13", (whole,)), whole, Arithmetic.DOUBLE, "cpu")
    evaluation.run(weight)
    value = evaluation.value(ValueKey("bias"))
    assert (value.dtype, value.tolist()) == (torch.float64, [0.5, float("-inf")])


def test_results_are_adjusted() -> None:
    whole = graph(
        Node("x", NodeKind.INPUT, types=typed("float32", 4)),
        call("sort", "aten.sort.default", node("x")),
        call("order", "_operator.getitem", node("sort"), 1, dtype="int64"),
        call("twice", "aten.mul.Tensor", node("order"), 2, dtype="int64"),
    )

    def adjust(node: Node, args: list[Any], result: Any) -> Any:
        return other_choice(node, args, result, Choice.NEXT)

    evaluation = Evaluation(Reference(FORMAT, "2.13", (whole,)), whole, Arithmetic.EAGER, "cpu", adjust=adjust)
    evaluation.set(ValueKey("x"), torch.tensor([7.0, 2.0, 7.0, 3.0]))
    for item in whole.nodes[1:]:
        evaluation.run(item)
    assert evaluation.value(ValueKey("twice")).tolist() == [2, 6, 4, 0]


def test_an_operator_that_torch_cannot_compute_is_no_failure_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = graph(
        Node("x", NodeKind.INPUT, types=typed("float32", 4)), call("add", "aten.add.Tensor", node("x"), "one")
    )
    failed = evaluate(Arithmetic.EAGER, whole, {"x": torch.zeros(4)})
    with pytest.raises(NotEvaluableError, match=r"aten.add.Tensor fails here: .*add"):
        failed.value(ValueKey("add"))

    def broken(target: str) -> Any:
        def fail(*_: Any, **__: Any) -> None:
            raise KeyError(target)

        return fail

    monkeypatch.setattr("aoti_debug.compare.evaluate.evaluation.is_random", lambda *_: False)
    monkeypatch.setattr("aoti_debug.compare.evaluate.evaluation.implementation_of", broken)
    with pytest.raises(KeyError):
        evaluate(Arithmetic.EAGER, whole, {"x": torch.zeros(4)})
    custom = graph(Node("x", NodeKind.INPUT, types=typed("float32", 4)), call("add", "mylib.op.default", node("x")))
    assert evaluate(Arithmetic.EAGER, custom, {"x": torch.zeros(4)}).failures == {
        "add": "mylib.op.default fails here: 'mylib.op.default'"
    }


def test_numbers_drawn_from_a_seed_are_the_same_in_each_arithmetic() -> None:
    whole = graph(
        Node("seeds", NodeKind.INPUT, types=typed("int64", 2)),
        call("seed", "prims.inductor_lookup_seed.default", node("seeds"), 1, dtype="int64"),
        call("rand", "prims.inductor_random.default", [4], node("seed"), "rand"),
        call("kept", "aten.gt.Scalar", node("rand"), 0.5, dtype="bool"),
    )
    seeds = torch.tensor([7, 8374652893746528374])
    results = [evaluate(arithmetic, whole, {"seeds": seeds}).value(ValueKey("kept")) for arithmetic in Arithmetic]
    assert [result.tolist() for result in results] == [[True, True, True, True]] * 3


def test_a_value_stays_what_it_is_when_a_node_overwrites_it() -> None:
    whole = graph(
        Node("state", NodeKind.WEIGHT, "state", types=typed("float32", 4)),
        call("before", "aten.mul.Tensor", node("state"), 2.0),
        call("add_", "aten.add_.Tensor", node("state"), 1.0, mutates=("state",)),
        call("after", "aten.mul.Tensor", node("state"), 2.0),
    )
    state = torch.zeros(4)
    done = evaluate(Arithmetic.EAGER, whole, {"state": state})
    assert done.value(ValueKey("before")).tolist() == [0] * 4
    assert done.value(ValueKey("after")).tolist() == [2] * 4
    assert done.value(ValueKey("state", "add_")).tolist() == [1] * 4
    assert state.tolist() == [0] * 4


def test_branches_and_loops() -> None:
    inner = [Node("i", NodeKind.INPUT), Node("a", NodeKind.INPUT)]

    def output(*names: str) -> Node:
        return Node("output", NodeKind.OUTPUT, args=([node(name) for name in names],))

    more = graph(*inner, call("lt", "aten.lt.Scalar", node("i"), 3), output("lt"), name="more")
    step = graph(
        *inner,
        call("next", "aten.add.Tensor", node("i"), 1),
        call("twice", "aten.mul.Tensor", node("a"), 2.0),
        output("next", "twice"),
        name="step",
    )
    whole = graph(
        Node("i", NodeKind.INPUT),
        Node("a", NodeKind.INPUT),
        Node("more", NodeKind.SUBGRAPH, "more"),
        Node("step", NodeKind.SUBGRAPH, "step"),
        call("loop", "higher_order.while_loop", node("more"), node("step"), [node("i"), node("a")], []),
        call("result", "_operator.getitem", node("loop"), 1),
        call("branch", "higher_order.cond", True, node("step"), node("more"), [node("i"), node("a")]),
    )
    done = evaluate(Arithmetic.EAGER, whole, {"i": torch.tensor(0), "a": torch.ones(4)}, more, step)
    assert done.failures == {}
    assert done.value(ValueKey("result")).tolist() == [8] * 4
    assert done.value(ValueKey("branch"))[0].item() == 1


def test_a_loop_that_does_not_end_in_another_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends where one more makes no difference: soon in bfloat16, after a life in float64."""
    monkeypatch.setattr("aoti_debug.compare.evaluate.evaluation._MAX_ITERATIONS", 1000)
    inner = Node("a", NodeKind.INPUT, types=typed("bfloat16", 4))
    output = Node("output", NodeKind.OUTPUT, args=([node("r")],))
    grown = call("b", "aten.add.Tensor", node("a"), 1.0, dtype="bfloat16")
    more = graph(
        inner,
        grown,
        call("ne", "aten.ne.Tensor", node("a"), node("b"), dtype="bool"),
        call("r", "aten.any.default", node("ne"), dtype="bool"),
        output,
        name="more",
    )
    step = graph(inner, call("r", "aten.add.Tensor", node("a"), 1.0, dtype="bfloat16"), output, name="step")
    whole = graph(
        Node("a", NodeKind.INPUT, types=typed("bfloat16", 4)),
        Node("more", NodeKind.SUBGRAPH, "more"),
        Node("step", NodeKind.SUBGRAPH, "step"),
        call("loop", "higher_order.while_loop", node("more"), node("step"), [node("a")], []),
    )
    begin = {"a": torch.ones(4, dtype=torch.bfloat16)}
    eager = evaluate(Arithmetic.EAGER, whole, begin, more, step)
    assert eager.value(ValueKey("loop"))[0].tolist() == [256] * 4
    double = evaluate(Arithmetic.DOUBLE, whole, begin, more, step)
    assert double.failures == {
        "loop": "a while_loop does not end within 1000 iterations and 60 s in float64 arithmetic"
    }
    monkeypatch.setattr("aoti_debug.compare.evaluate.evaluation._MAX_SECONDS", -1)
    assert "and -1 s" in evaluate(Arithmetic.EAGER, whole, begin, more, step).failures["loop"]


def test_an_operator_without_float64_computes_in_its_own_dtype() -> None:
    whole = graph(
        Node("x", NodeKind.INPUT, types=typed("float32", 4)),
        call("bits", "aten.view.dtype", node("x"), {"dtype": "int32"}, dtype="int32"),
    )
    double = evaluate(Arithmetic.DOUBLE, whole, {"x": torch.ones(4)})
    assert double.value(ValueKey("bits")).tolist() == [0x3F800000] * 4


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (call("r", "aten.rand.default", [4]), "random numbers: aten.rand.default"),
        (call("n", "nothing.here.default"), "nothing.here.default is not known here"),
        (call("u", "aten.neg.default", {"unknown": "Generator"}), "an argument of a kind that cannot be written down"),
        (call("m", "aten.mm.default", node("x"), node("x")), "aten.mm.default fails here"),
        (call("k", "higher_order.strict_mode"), "strict_mode has no evaluation of its own"),
        (call("t", "higher_order.triton_kernel_wrapper_mutation"), "a user-defined Triton kernel"),
    ],
)
def test_what_cannot_be_evaluated_is_said_where_it_is_needed(item: Node, reason: str) -> None:
    whole = graph(Node("x", NodeKind.INPUT), item, call("y", "aten.neg.default", node(item.name)))
    done = evaluate(Arithmetic.EAGER, whole, {"x": torch.ones(4)})
    with pytest.raises(NotEvaluableError, match=reason):
        done.value(ValueKey("y"))


ATTENTION = "aten._scaled_dot_product_flash_attention.default"


@pytest.mark.parametrize(
    ("target", "args", "random"),
    [
        ("aten.rand.default", ([4],), True),
        ("aten.rand_like.default", (SMALL,), True),
        ("aten.bernoulli.p", (SMALL, 0.5), True),
        ("prims.inductor_seeds.default", (), True),
        ("prims.inductor_random.default", ([4], SMALL, "rand"), True),
        ("prims.inductor_rand_eager_offset.default", (), True),
        ("prims.inductor_force_stride_order.default", (SMALL, [1]), False),
        ("aten.native_dropout.default", (SMALL, 0.5, True), True),
        ("aten.native_dropout.default", (SMALL, 0.5, False), False),
        ("aten.native_dropout.default", (SMALL, 0.5, None), True),
        ("aten.native_dropout.default", (SMALL, 0.0, None), False),
        (ATTENTION, (SMALL, SMALL, SMALL, 0.5), True),
        (ATTENTION, (SMALL, SMALL, SMALL), False),
        ("aten.round.default", (SMALL,), False),
        ("aten.lstm.input", (SMALL, [SMALL], [SMALL], True, 2, 0.0, True, False, False), False),
        ("aten.lstm.input", (SMALL, [SMALL], [SMALL], True, 2, 0.5, True, False, False), True),
        ("aten.lstm.input", (SMALL, [SMALL], [SMALL], True, 1, 0.5, True, False, False), False),  # between layers
        ("aten.lstm.input", (SMALL, [SMALL], [SMALL], True, 2, 0.5, False, False, False), False),
        ("aten.dropout.default", (SMALL, 0.0, True), False),
        ("aten.dropout.default", (SMALL, 0.5, True), True),
        ("aten.rrelu.default", (SMALL,), False),
        ("aten.bernoulli.p", (SMALL, 0.0), True),
        ("_operator.getitem", ((1, 2), 0), False),
    ],
)
def test_random_operators(target: str, args: tuple[Any, ...], random: bool) -> None:
    assert is_random(target, args, {}) is random


def test_the_number_of_terms() -> None:
    whole = graph(
        Node("x", NodeKind.INPUT, types=typed("float32", 8, 32)),
        Node("mm", NodeKind.CALL, "aten.mm.default", (node("x"), node("x")), types=typed("float32", 8, 8)),
    )
    done = evaluate(Arithmetic.EAGER, whole, {"x": torch.ones(32, 32)})
    assert done.terms == 32
    total = graph(
        Node("x", NodeKind.INPUT, types=typed("float32", 8, 32)),
        Node("sum", NodeKind.CALL, "aten.sum.dim_IntList", (node("x"), [1]), types=typed("float32", 8)),
    )
    assert evaluate(Arithmetic.EAGER, total, {"x": torch.ones(8, 32)}).terms == 32


def test_indices_of_equal_elements() -> None:
    whole = graph(
        Node("x", NodeKind.INPUT, types=typed("float32", 2, 3)),
        call("argmax", "aten.argmax.default", node("x"), 1, dtype="int64"),
        call("sort", "aten.sort.default", node("x")),
        call("order", "_operator.getitem", node("sort"), 1, dtype="int64"),
        call("neg", "aten.neg.default", node("x")),
    )
    values = torch.tensor([[1.0, 5.0, 5.0], [3.0, 2.0, 1.0]])
    eager = evaluate(Arithmetic.EAGER, whole, {"x": values})
    ties = equal_choices(whole, "argmax", torch.tensor([2, 1]), eager, ["argmax"])
    assert ties is not None
    assert ties.tolist() == [False, False]
    order = equal_choices(whole, "order", torch.tensor([[0, 2, 1], [0, 1, 2]]), eager, ["sort", "order"])
    assert order is not None
    assert order.tolist() == [[True, True, True], [False, True, False]]
    assert equal_choices(whole, "neg", values, eager, ["neg"]) is None
    assert equal_choices(whole, "argmax", torch.tensor([7, 0]), eager, ["argmax"]) is None


def test_operators_of_prims_are_computed_without_dynamo() -> None:
    code = (
        "import sys, torch; from aoti_debug.compare.evaluate.functions import implementation_of; "
        "narrow = implementation_of('prims.convert_element_type.default')(torch.ones(2), torch.int32); "
        "seed = implementation_of('prims.inductor_lookup_seed.default')(torch.tensor([3, 4]), 1); "
        "assert narrow.tolist() == [1, 1] and narrow.dtype == torch.int32 and seed == 4; "
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
