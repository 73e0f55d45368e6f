"""Operations of nodes, against torch's own counter where it counts them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import MODEL, Graph, Node, NodeKind, TensorType
from aoti_debug.views.profile.site_work import work_of


def graph(target: str, arguments: list[Any], *results: tuple[int | str, ...]) -> Graph:
    """A graph of one call; a tuple among the arguments is the shape of a tensor that it is given."""
    nodes = []
    given: list[Any] = []
    for number, argument in enumerate(arguments):
        if isinstance(argument, tuple):
            nodes.append(Node(f"in{number}", NodeKind.INPUT, types=(type_of(argument),)))
            given.append({"node": f"in{number}"})
        else:
            given.append(argument)
    call = Node("call", NodeKind.CALL, target, tuple(given), types=tuple(map(type_of, results)))
    return Graph("", MODEL, (*nodes, call), ())


def type_of(shape: tuple[int | str, ...]) -> TensorType:
    return TensorType("float32", "cpu", tuple(map(str, shape)), ("1",) * len(shape))


def counted(operator: Any, *tensors: torch.Tensor, **options: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        operator(*tensors, **options)
    return int(counter.get_total_flops())


@pytest.mark.parametrize(
    ("target", "shapes", "operator"),
    [
        ("aten.mm.default", [(4, 16), (16, 8)], torch.mm),
        ("aten.bmm.default", [(3, 4, 16), (3, 16, 8)], torch.bmm),
        ("aten.addmm.default", [(8,), (4, 16), (16, 8)], torch.addmm),
        ("aten.baddbmm.default", [(3, 4, 8), (3, 4, 16), (3, 16, 8)], torch.baddbmm),
    ],
)
def test_contractions_count_as_torch_counts_them(target: str, shapes: list[Any], operator: Any) -> None:
    tensors = [torch.randn(*shape) for shape in shapes]
    result = operator(*tensors)
    found = work_of(graph(target, shapes, tuple(result.shape)), ["call"], Symbols())
    assert found.flops == counted(operator, *tensors) > 0
    assert (found.contracts, found.dtype) == (True, "float32")


@pytest.mark.parametrize("operator", ["flash_attention_for_cpu", "flash_attention", "efficient_attention"])
def test_attention(operator: str) -> None:
    shapes = (2, 3, 8, 16), (2, 3, 10, 16), (2, 3, 10, 16)
    attention = graph(f"aten._scaled_dot_product_{operator}.default", [*shapes], (2, 3, 8, 16), (2, 3, 8))
    assert work_of(attention, ["call"], Symbols()).flops == sdpa_flop_count(*shapes)


@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions(transposed: bool) -> None:
    image, weight = torch.randn(2, 4, 9, 9), torch.randn(*((4, 3, 3, 3) if transposed else (6, 2, 3, 3)))
    groups = 1 if transposed else 2
    options = ([1, 1], [0, 0], [1, 1], transposed, [0, 0], groups)
    result = torch.ops.aten.convolution(image, weight, None, *options)
    arguments = [tuple(image.shape), tuple(weight.shape), None, *options]
    found = work_of(graph("aten.convolution.default", arguments, tuple(result.shape)), ["call"], Symbols())
    with FlopCounterMode(display=False) as counter:
        torch.ops.aten.convolution(image, weight, None, *options)
    assert found.flops == counter.get_total_flops() > 0


@pytest.mark.parametrize(
    ("target", "result", "flops"),
    [
        ("aten.mul.Tensor", (4, 8), 32),
        ("aten.add_.Tensor", (4, 8), 32),
        ("aten.sum.dim_IntList", (4, 1), 32),
        ("aten.permute.default", (8, 4), 0),
        ("prims.convert_element_type.default", (4, 8), 0),
        ("_operator.getitem", (4, 8), 0),
        ("mylib.op.default", (4, 8), None),
        ("aten.sort.stable", (4, 8), None),
    ],
)
def test_other_operators(target: str, result: tuple[int, ...], flops: int | None) -> None:
    found = work_of(graph(target, [(4, 8)], result), ["call"], Symbols())
    assert found.flops == flops
    assert not found.contracts


def test_symbolic_sizes() -> None:
    product = graph("aten.mm.default", [("s0", 16), (16, "2*s0")], ("s0", "2*s0"))
    assert work_of(product, ["call"], Symbols(known={"s0": 3})).flops == 2 * 3 * 16 * 6
    assert work_of(product, ["call"], Symbols()).flops is None
