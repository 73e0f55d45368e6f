"""Large inputs that keep their own dtype until an operator reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from aoti_debug.base.machine import torch_settings
from aoti_debug.compare.evaluate import arithmetic
from aoti_debug.compare.evaluate.arithmetic import Arithmetic, Narrow, WideValues
from aoti_debug.compare.evaluate.evaluation import Evaluation
from aoti_debug.compare.worker.region_values import perturbed
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey
from tests.compare.anonymous_memory import growth


def test_the_nearest_number_with_ten_bits_of_mantissa() -> None:
    values = torch.tensor([1.0, 1 + 2**-11, 1 + 2**-10, 1 + 1.4 * 2**-10, -(1 + 1.6 * 2**-10), 0.0])
    expected = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-10, 1 + 2**-10, -(1 + 2 * 2**-10), 0.0])
    assert torch.equal(arithmetic.tensor_float_of(values), expected)
    random = torch.randn(1000)
    relative = ((arithmetic.tensor_float_of(random) - random) / random).abs().max()
    assert 2**-12 < relative <= 2**-11


def test_what_is_not_finite_or_not_float32_stays() -> None:
    special = torch.tensor([float("nan"), float("inf"), -float("inf")])
    assert torch.equal(arithmetic.tensor_float_of(special).isnan(), special.isnan())
    assert torch.equal(arithmetic.tensor_float_of(special)[1:], special[1:])
    half = torch.randn(4, dtype=torch.float16)
    assert arithmetic.tensor_float_of(half) is half
    assert arithmetic.tensor_float_of(3) == 3


@pytest.fixture
def switches() -> Iterator[None]:
    """Restores what may use TF32."""
    with torch_settings.applied(torch_settings.capture()):
        yield


@pytest.mark.usefixtures("switches")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.parametrize("convolutions", [True, False])
def test_what_may_use_it_on_a_gpu(device: str, convolutions: bool) -> None:
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = convolutions, not convolutions
    assert arithmetic.may_use_tensor_float("aten.convolution.default", device) is convolutions
    assert arithmetic.may_use_tensor_float("aten.mm.default", device) is not convolutions
    assert not arithmetic.may_use_tensor_float("aten.add.Tensor", device)
    assert not arithmetic.may_use_tensor_float("aten.convolution.default", "cpu")


GENERATOR = torch.Generator().manual_seed(0)
A, B, BIAS = (torch.randn(*shape, generator=GENERATOR) for shape in ((6, 40), (40, 24), (24,)))
INDEX = torch.tensor([3, 0, 3])


def node(target: str, *args: Any, shape: tuple[int, ...]) -> Node:
    types = (TensorType("float32", "cpu", tuple(map(str, shape)), ()),)
    return Node("result", NodeKind.CALL, target, args, types=types)


def evaluated(result: Node, values: dict[str, Any]) -> Evaluation:
    """The evaluation of a node in float64."""
    inputs = (Node(name, NodeKind.WEIGHT, name, types=(None,)) for name in values)
    graph = Graph("", MODEL, (*inputs, result), ())
    evaluation = Evaluation(Reference(FORMAT, "2.13", (graph,)), graph, Arithmetic.DOUBLE, "cpu")
    for name, value in values.items():
        evaluation.set(ValueKey(name), value)
    evaluation.run(result)
    return evaluation


@pytest.mark.parametrize(
    ("result", "values"),
    [
        (node("aten.mm.default", {"node": "a"}, {"node": "b"}, shape=(6, 24)), {"a": A, "b": B}),
        (node("aten.mm.default", {"node": "a"}, {"node": "b"}, shape=(24, 6)), {"a": B.T, "b": A.T}),
        (
            node("aten.addmm.default", {"node": "c"}, {"node": "a"}, {"node": "b"}, shape=(6, 24)),
            {"a": A, "b": B, "c": BIAS},
        ),
        (
            node("aten.addmm.default", {"node": "c"}, {"node": "a"}, {"node": "b"}, shape=(24, 6)),
            {"a": B.T, "b": A.T, "c": BIAS[:, None]},
        ),
        (node("aten.embedding.default", {"node": "a"}, {"node": "b"}, shape=(3, 40)), {"a": A, "b": INDEX}),
        (node("aten.permute.default", {"node": "a"}, [1, 0], shape=(40, 6)), {"a": A}),
        (node("aten.add.Tensor", {"node": "a"}, {"node": "b"}, shape=(6, 40)), {"a": A, "b": A}),
    ],
    ids=lambda value: value.target if isinstance(value, Node) else "",
)
def test_an_operator_of_a_large_input(monkeypatch: pytest.MonkeyPatch, result: Node, values: dict[str, Any]) -> None:
    whole = evaluated(result, values)
    monkeypatch.setattr(arithmetic, "LARGE", 512)
    monkeypatch.setattr(arithmetic, "_PIECE", 1024)
    monkeypatch.setattr(arithmetic, "_WHOLE", 1024)
    pieces = evaluated(result, values)
    assert isinstance(pieces.values.held(ValueKey("a")), Narrow)
    first, second = (evaluation.value(ValueKey("result")) for evaluation in (whole, pieces))
    assert second.dtype == torch.float64
    assert torch.allclose(first, second, rtol=1e-14, atol=1e-14)
    assert (whole.terms, whole.largest_sum) == (pieces.terms, pieces.largest_sum)


def test_a_large_input_is_perturbed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    from aoti_debug.compare.evaluate import rounding_errors

    key = ValueKey("a")
    whole = perturbed({key: A}, torch.Generator().manual_seed(1))[key]
    for name, value in (("LARGE", 512), ("_PART", 7)):
        monkeypatch.setattr(rounding_errors, name, value)
    monkeypatch.setattr(arithmetic, "_STEPS", 640)
    held = perturbed({key: A}, torch.Generator().manual_seed(1))[key]
    assert isinstance(held, Narrow)
    assert torch.equal(held.wide(), whole)
    assert torch.equal(torch.cat(list(held.pieces(0, 400))), whole)


def test_a_row_of_a_large_table_takes_no_memory() -> None:
    table = torch.ones(1 << 20, 32)  # 128 MiB
    result = node("aten.embedding.default", {"node": "a"}, {"node": "b"}, shape=(3, 32))
    with growth() as grown:
        evaluated(result, {"a": table, "b": INDEX})
    assert grown.bytes < table.nbytes  # its magnitudes are measured a part at a time


def test_values_of_nodes_are_dropped() -> None:
    values = WideValues()
    for key in (ValueKey("a"), ValueKey("a", "b"), ValueKey("b")):
        values[key] = 1
    assert list(values.without({"b"})) == [ValueKey("a")]
    values.drop({"a"})
    assert list(values) == [ValueKey("b")]
