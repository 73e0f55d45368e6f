"""The operators whose values a pass has changed, from the graphs before and after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from aoti_debug.compare.evaluate.arithmetic import Arithmetic
from aoti_debug.compare.evaluate.exported_calls import ExportedCalls
from aoti_debug.compare.protocol.measurement import LARGEST, LEAST, AlteredProgram
from aoti_debug.compare.protocol.messages import message_line, read_message
from aoti_debug.compare.protocol.request import KnownValue, ProgramRun, Recorded
from aoti_debug.compare.suspects import alteration_of
from aoti_debug.compare.worker.altered_program import Fingerprints, WrongOutput, altered_program, fingerprint
from aoti_debug.package.program_graphs import (
    EXPORTED,
    FORMAT,
    MODEL,
    Graph,
    Node,
    NodeKind,
    Reference,
    TensorType,
    ValueKey,
)
from aoti_debug.runs.run.saved_outputs import write_tensor

KIND = TensorType("float32", "cpu", ("8",), ("1",))
X = torch.linspace(-2, 3, 8)
Calls = Sequence[tuple[str, str, tuple[object, ...]]]  # name, target, arguments; text that begins with % is a node


def graph(function: str, calls: Calls, returned: Sequence[str]) -> Graph:
    def argument(value: object) -> object:
        return {"node": value[1:]} if isinstance(value, str) and value.startswith("%") else value

    nodes = [
        Node(name, NodeKind.CALL, target, tuple(map(argument, args)), types=(KIND,)) for name, target, args in calls
    ]
    output = Node("output", NodeKind.OUTPUT, "output", ([{"node": name} for name in returned],))
    return Graph("", function, (Node("x", NodeKind.INPUT, types=(KIND,)), *nodes, output), ())


def whole(actual: torch.Tensor) -> WrongOutput:
    """An output all of whose elements are looked at."""
    return WrongOutput(actual, torch.ones(actual.numel(), dtype=torch.bool))


def altered(folder: Path, before: Graph, after: Graph, wrong: Sequence[int]) -> AlteredProgram:
    """What is found where a run returned what the graph after the passes says."""
    reference = Reference(FORMAT, torch.__version__, (after,), exported=(before,))
    write_tensor(folder / "x.safetensors", "x", X)
    known = KnownValue(ValueKey("x"), Recorded("0.0", "x", str(folder / "x.safetensors")))
    exported, lowered = reference.of_exported, replace(reference, graphs=(), exported=(after,)).of_exported
    assert exported is not None
    assert lowered is not None
    calls = ExportedCalls(exported, Arithmetic.DOUBLE, "cpu", [X], lambda _: None)
    returned = ExportedCalls(lowered, Arithmetic.EAGER, "cpu", [X], lambda _: None).call()
    actual = {n: whole(returned[n]) for n in wrong}
    return altered_program(
        reference, calls, ProgramRun(graph="", function=MODEL, inputs=(known,), outputs=()), "cpu", actual
    )


BEFORE = graph(
    EXPORTED,
    [
        ("sin", "aten.sin.default", ("%x",)),
        ("tanh", "aten.tanh.default", ("%sin",)),
        ("mul", "aten.mul.Tensor", ("%tanh", 3.0)),
        ("exp", "aten.exp.default", ("%x",)),
        ("add", "aten.add.Tensor", ("%mul", "%exp")),
    ],
    ["add", "exp"],
)
SAME = graph(
    MODEL,
    [
        ("a", "aten.sin.default", ("%x",)),
        ("b", "aten.tanh.default", ("%a",)),
        ("c", "aten.mul.Tensor", ("%b", 3.0)),
        ("d", "aten.exp.default", ("%x",)),
        ("e", "aten.add.Tensor", ("%c", "%d")),
    ],
    ["e", "d"],
)


def changed(name: str, **members: object) -> Graph:
    return replace(SAME, nodes=tuple(replace(n, **members) if n.name == name else n for n in SAME.nodes))  # type: ignore[arg-type]


def test_a_program_that_no_pass_has_changed(tmp_path: Path) -> None:
    found = altered(tmp_path, BEFORE, SAME, [0, 1])
    assert (found.relative, found.lost) == (0.0, ())
    assert found.explained < 0.01


@pytest.mark.parametrize(
    ("node", "members", "lost"),
    [
        ("a", {"target": "aten.cos.default"}, "sin"),
        ("b", {"target": "aten.sigmoid.default"}, "tanh"),
        ("c", {"args": ({"node": "b"}, 2.0)}, "mul"),
        ("e", {"target": "aten.sub.Tensor"}, "add"),
    ],
)
def test_the_first_operator_whose_value_is_lost(
    tmp_path: Path, node: str, members: dict[str, object], lost: str
) -> None:
    found = altered(tmp_path, BEFORE, changed(node, **members), [0])
    assert found.relative > 0.01
    assert found.explained > 0.9
    assert not found.is_rounded
    assert (found.lost, found.lost_signs) == ((lost,), ())


def test_a_value_that_is_computed_and_not_returned(tmp_path: Path) -> None:
    swapped = replace(SAME, nodes=(*SAME.nodes[:-1], replace(SAME.nodes[-1], args=(({"node": "c"}, {"node": "d"}),))))
    found = altered(tmp_path, BEFORE, swapped, [0, 1])
    assert (found.lost, found.kept) == (("add",), ())
    behind = replace(SAME, nodes=(*SAME.nodes[:-1], replace(SAME.nodes[-1], args=(({"node": "e"}, {"node": "c"}),))))
    found = altered(tmp_path, BEFORE, behind, [0, 1])
    assert (found.lost, found.kept) == ((), ("exp",))


def test_the_numbers_of_an_output_may_be_there_by_chance(tmp_path: Path) -> None:
    doubled = [("double", "aten.mul.Tensor", ("%x", 2.0)), ("half", "aten.div.Tensor", ("%double", 2.0))]
    single = [("same", "aten.mul.Tensor", ("%x", 1.0)), ("half", "aten.div.Tensor", ("%same", 2.0))]
    found = altered(tmp_path, graph(EXPORTED, doubled, ["half"]), graph(MODEL, single, ["half"]), [0])
    assert (found.lost, found.kept) == (("double",), ("half",))


def test_values_that_a_pass_leaves_unused_count_as_lost(tmp_path: Path) -> None:
    left_out = replace(
        SAME,
        nodes=tuple(replace(n, args=({"node": "x"},)) if n.name == "b" else n for n in SAME.nodes),
    )
    assert altered(tmp_path, BEFORE, left_out, [0]).lost == ("sin",)


def test_a_pass_that_makes_nan(tmp_path: Path) -> None:
    found = altered(tmp_path, BEFORE, changed("d", target="aten.log.default"), [1])
    assert (found.relative, found.explained, found.lost) == (LARGEST, 1.0, ("exp",))
    assert read_message(message_line(found).encode()) == found


def test_what_float64_rounds_explains_no_error(tmp_path: Path) -> None:
    zero = [("sin", "aten.sin.default", ("%x",)), ("sub", "aten.sub.Tensor", ("%sin", "%sin"))]
    near = [*zero[:1], ("mul", "aten.mul.Tensor", ("%sin", 1 + 1e-15)), ("sub", "aten.sub.Tensor", ("%mul", "%sin"))]
    before, after = graph(EXPORTED, zero, ["sub"]), graph(MODEL, near, ["sub"])
    reference = Reference(FORMAT, torch.__version__, (after,), exported=(before,))
    write_tensor(tmp_path / "x.safetensors", "x", X)
    known = KnownValue(ValueKey("x"), Recorded("0.0", "x", str(tmp_path / "x.safetensors")))
    exported = reference.of_exported
    assert exported is not None
    calls = ExportedCalls(exported, Arithmetic.DOUBLE, "cpu", [X], lambda _: None)
    actual = {0: whole(torch.full((8,), 1e-7))}
    found = altered_program(
        reference, calls, ProgramRun(graph="", function=MODEL, inputs=(known,), outputs=()), "cpu", actual
    )
    assert found.relative > 1e200
    assert found.explained < 1e-6


def test_operators_that_no_wrong_output_needs_are_not_named(tmp_path: Path) -> None:
    both = changed("d", target="aten.neg.default")
    assert altered(tmp_path, BEFORE, both, [1]).lost == ("exp",)


NUMBERS = torch.linspace(-3, 5, 24, dtype=torch.float64).reshape(4, 6)


def held(*tensors: Tensor) -> Fingerprints:
    found = Fingerprints()
    for tensor in tensors:
        found.add(tensor)
    return found


@pytest.mark.parametrize("same", [NUMBERS, NUMBERS.t(), NUMBERS.reshape(-1), NUMBERS * (1 + 1e-9), NUMBERS.flip(0)])
def test_the_same_numbers_are_found_in_any_order(same: Tensor) -> None:
    assert held(NUMBERS + 1, NUMBERS, NUMBERS * 2).has_like(same)


@pytest.mark.parametrize(
    "other", [-NUMBERS, NUMBERS * 1.001, NUMBERS + 0.001, NUMBERS[:3], torch.cat([NUMBERS, NUMBERS])]
)
def test_other_numbers_are_not(other: Tensor) -> None:
    assert not held(NUMBERS + 1, NUMBERS, NUMBERS * 2).has_like(other)


def test_elements_that_are_not_finite_are_counted() -> None:
    one = NUMBERS.clone()
    one[0, 0] = math.nan
    two = one.clone()
    two[1, 1] = math.inf
    assert fingerprint(two).special == 2
    assert held(one).has_like(one)
    assert not held(one).has_like(two)
    assert not held(two).has_like(torch.where(two.isinf(), -two, two))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16, torch.complex64])
def test_tensors_of_other_dtypes(dtype: torch.dtype) -> None:
    tensor = (NUMBERS > 0).to(dtype)
    assert held(tensor).has_like(tensor)
    assert not held(tensor).has_like(torch.zeros_like(tensor))


def test_a_conjugated_tensor() -> None:
    tensor = torch.complex(NUMBERS, NUMBERS + 1)
    assert held(tensor.conj()).has_like(tensor.conj().resolve_conj())


def test_a_tensor_without_elements() -> None:
    assert held(torch.ones(0)).has_like(torch.ones(0, 3))
    assert not held(NUMBERS).has_like(torch.ones(0))


def test_zeros_of_another_sign() -> None:
    zeros = torch.tensor([0.0, -0.0, 2.0])
    assert held(zeros).has_like(zeros.abs())
    assert held(zeros).has_zeros_like(zeros)
    assert not held(zeros).has_zeros_like(zeros.abs())


def test_an_addition_of_zeros_that_a_pass_leaves_out(tmp_path: Path) -> None:
    """The sum of -0 and 0 is 0, and its reciprocal another infinity."""
    before = [
        ("ceil", "aten.ceil.default", ("%x",)),
        ("add", "aten.add.Tensor", ("%ceil", 0.0)),
        ("reciprocal", "aten.reciprocal.default", ("%add",)),
    ]
    after = [("a", "aten.ceil.default", ("%x",)), ("b", "aten.reciprocal.default", ("%a",))]
    found = altered(tmp_path, graph(EXPORTED, before, ["reciprocal"]), graph(MODEL, after, ["b"]), [0])
    assert (found.relative, found.explained, found.lost, found.kept) == (LARGEST, 1.0, ("add",), ())
    assert found.lost_signs == ("add",)


def test_zeros_of_another_sign_that_a_lost_value_is_computed_from(tmp_path: Path) -> None:
    """A product with 0 whose sign is lost, and the angle that it decides."""
    before = [("mul", "aten.mul.Tensor", ("%x", 0.0)), ("angle", "aten.atan2.default", ("%mul", "%x"))]
    after = [
        ("a", "aten.abs.default", ("%x",)),
        ("b", "aten.mul.Tensor", ("%a", 0.0)),
        ("c", "aten.atan2.default", ("%b", "%x")),
    ]
    found = altered(tmp_path, graph(EXPORTED, before, ["angle"]), graph(MODEL, after, ["c"]), [0])
    assert (found.lost, found.lost_signs) == (("angle", "mul"), ("mul",))


def test_numbers_in_another_order() -> None:
    numbers = torch.arange(12.0).reshape(3, 4)
    assert held(numbers).has_like(numbers.t())
    assert held(numbers).has_in_order(numbers.reshape(4, 3))
    assert not held(numbers).has_in_order(numbers.flip(0))


def test_a_value_whose_numbers_are_there_in_another_order(tmp_path: Path) -> None:
    """A pass leaves out a negation: what is left has the same numbers from the other end."""
    before = [
        ("flip", "aten.flip.default", ("%x", [0])),
        ("sub", "aten.sub.Tensor", ("%x", "%flip")),
        ("neg", "aten.neg.default", ("%sub",)),
        ("mul", "aten.mul.Tensor", ("%neg", "%x")),
    ]
    after = [*before[:2], ("mul", "aten.mul.Tensor", ("%sub", "%x"))]
    found = altered(tmp_path, graph(EXPORTED, before, ["mul"]), graph(MODEL, after, ["mul"]), [0])
    assert (found.lost, found.lost_signs, found.lost_order) == (("mul", "neg"), (), ("neg",))


def test_a_step_between_integers_that_a_cast_rounds_to_is_no_proof(tmp_path: Path) -> None:
    cast = ("cast", "prims.convert_element_type.default", ("%add", torch.uint8))
    before = [("add", "aten.mul.Tensor", ("%x", 0.0)), cast]
    after = [("add", "aten.add.Tensor", ("%add0", 1.0)), cast]
    after = [("add0", "aten.mul.Tensor", ("%x", 0.0)), *after]
    found = altered(tmp_path, graph(EXPORTED, before, ["cast"]), graph(MODEL, after, ["cast"]), [0])
    (output,) = found.outputs
    assert (output.relative > LEAST, output.relative < output.least, found.is_rounded) == (True, True, True)


def test_elements_that_are_repeated_are_not_what_is_lost(tmp_path: Path) -> None:
    repeated = ("rows", "aten.expand.default", ("%x", [3, 8]))
    before = graph(EXPORTED, [repeated, ("exp", "aten.exp.default", ("%rows",))], ["exp"])
    scaled = ("mul", "aten.mul.Tensor", ("%x", 2.0))
    after = graph(
        MODEL,
        [scaled, ("exp", "aten.exp.default", ("%mul",)), ("more", "aten.expand.default", ("%exp", [3, 8]))],
        ["more"],
    )
    assert altered(tmp_path, before, after, [0]).lost == ("exp",)


def test_what_a_node_overwrites_through_a_view(tmp_path: Path) -> None:
    before = graph(
        EXPORTED,
        [
            ("sin", "aten.sin.default", ("%x",)),
            ("half", "aten.slice.Tensor", ("%sin", 0, 0, 4)),
            ("add_", "aten.add_.Tensor", ("%half", "%half")),
            ("mul", "aten.mul.Tensor", ("%sin", 3.0)),
        ],
        ["mul"],
    )
    nodes = [replace(node, mutates=("half",)) if node.name == "add_" else node for node in before.nodes]
    after = graph(
        MODEL,
        [
            ("sin", "aten.sin.default", ("%x",)),
            ("half", "aten.slice.Tensor", ("%sin", 0, 0, 4)),
            ("add", "aten.add.Tensor", ("%half", "%half")),
            ("cat", "aten.constant_pad_nd.default", ("%add", [0, 4], 0.0)),  # what was not added to is lost
            ("mul", "aten.mul.Tensor", ("%cat", 3.0)),
        ],
        ["mul"],
    )
    found = altered(tmp_path, replace(before, nodes=tuple(nodes)), after, [0])
    assert found.lost == ("add_",)
    reference = Reference(FORMAT, torch.__version__, (after,), exported=(replace(before, nodes=tuple(nodes)),))
    (lost,) = alteration_of(found, reference).lost
    assert lost.sentence == (
        "it has no value like that of sin after add_ = aten.add_.Tensor(half, half): the change may begin there"
    )
