"""Regions evaluated from recorded tensors: what rounding and choices among equal elements explain, and what not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from aoti_debug.compare.protocol.measurement import NOT_REPEATABLE, Measurement, RegionResult
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.compare.worker.region import RegionEvaluator
from aoti_debug.package.program_graphs import FORMAT, MODEL, Graph, Node, NodeKind, Reference, TensorType, ValueKey
from tests import saved_tensors

X = {"node": "x"}
GENERATOR = torch.Generator().manual_seed(0)


def typed(dtype: str, *shape: int) -> tuple[TensorType, ...]:
    return (TensorType(dtype, "cpu", tuple(map(str, shape)), ()),)


def call(name: str, target: str, *args: Any, dtype: str, shape: tuple[int, ...]) -> Node:
    return Node(name, NodeKind.CALL, target, args, types=typed(dtype, *shape))


def measured(folder: Path, nodes: tuple[Node, ...], x: torch.Tensor, actual: torch.Tensor) -> Measurement:
    """The measurement of the last node's value, of a kernel that reads x."""
    return evaluated(folder, nodes, x, actual).outputs[0]


def evaluated(folder: Path, nodes: tuple[Node, ...], x: torch.Tensor, actual: torch.Tensor) -> RegionResult:
    """The result of the region of a kernel that reads x and writes the last node's value."""
    type_ = typed(str(x.dtype).removeprefix("torch."), *x.shape)
    graph = Graph("", MODEL, (Node("x", NodeKind.INPUT, types=type_), *nodes), ())
    names = [node.name for node in nodes]

    def known(value: str, tensor: torch.Tensor) -> KnownValue:
        saved_tensors.save(folder / f"{value}.safetensors", value, tensor)
        return KnownValue(ValueKey(value), Recorded("0.0", value, str(folder / f"{value}.safetensors")))

    region = Region(
        launch="0.0",
        launches=("0.0",),
        graph="",
        function=MODEL,
        nodes=tuple(names),
        inputs=(known("x", x),),
        outputs=(known(names[-1], actual),),
    )
    result = RegionEvaluator(Reference(FORMAT, "2.13", (graph,)), "cpu").measure(region)
    assert not result.failure
    return result


SORTED_TWICE = (
    call("sort", "aten.sort.default", X, dtype="float32", shape=(4, 16)),
    call("order", "_operator.getitem", {"node": "sort"}, 1, dtype="int64", shape=(4, 16)),
    call("twice", "aten.mul.Tensor", {"node": "order"}, 2, dtype="int64", shape=(4, 16)),
)


def test_what_is_computed_from_the_indices_of_equal_elements(tmp_path: Path) -> None:
    x = torch.randint(0, 3, (4, 16), generator=GENERATOR).float()
    other = 15 - x.flip(1).sort(stable=True).indices  # of equal elements, the last first
    assert measured(tmp_path, SORTED_TWICE, x, 2 * other).wrong == 0
    distinct = torch.arange(16.0).expand(4, 16).clone()
    assert measured(tmp_path, SORTED_TWICE, distinct, 2 * distinct.long()).wrong == 0
    wrong = 2 * distinct.long()
    wrong[1, 3] += 2
    assert measured(tmp_path, SORTED_TWICE, distinct, wrong).wrong == 1


def test_no_value_that_a_choice_can_make(tmp_path: Path) -> None:
    x = torch.randint(0, 3, (4, 16), generator=GENERATOR).float()
    assert measured(tmp_path, SORTED_TWICE, x, torch.full((4, 16), -777)).wrong == 64


CHOSEN = (
    call("argmax", "aten.argmax.default", X, 1, dtype="int64", shape=(4,)),
    call(
        "float",
        "prims.convert_element_type.default",
        {"node": "argmax"},
        {"dtype": "float32"},
        dtype="float32",
        shape=(4,),
    ),
    call("scaled", "aten.mul.Tensor", {"node": "float"}, 1.5, dtype="float32", shape=(4,)),
)


def test_the_last_of_many_equal_elements_and_rows_without_any(tmp_path: Path) -> None:
    x = torch.ones(4, 64)
    assert measured(tmp_path, CHOSEN, x, torch.full((4,), 63 * 1.5)).wrong == 0
    x[1:] = torch.arange(64.0)
    right = torch.tensor([63, 63, 63, 63]) * 1.5
    assert measured(tmp_path, CHOSEN, x, right).wrong == 0
    assert measured(tmp_path, CHOSEN, x, right * torch.tensor([1.0, 0.5, 0.5, 0.5])).wrong == 3


HALF = "bfloat16"
NORMALISED = (
    call("wide", "prims.convert_element_type.default", X, {"dtype": "float32"}, dtype="float32", shape=(8, 64)),
    call("square", "aten.pow.Tensor_Scalar", {"node": "wide"}, 2, dtype="float32", shape=(8, 64)),
    call("mean", "aten.mean.dim", {"node": "square"}, [-1], True, dtype="float32", shape=(8, 1)),
    call("rsqrt", "aten.rsqrt.default", {"node": "mean"}, dtype="float32", shape=(8, 1)),
    call("mul", "aten.mul.Tensor", {"node": "wide"}, {"node": "rsqrt"}, dtype="float32", shape=(8, 64)),
    call("half", "prims.convert_element_type.default", {"node": "mul"}, {"dtype": HALF}, dtype=HALF, shape=(8, 64)),
)


def test_a_mean_without_its_first_term_in_half_precision(tmp_path: Path) -> None:
    x = torch.randn(8, 64, generator=GENERATOR).to(torch.bfloat16)
    x[:, 0] = 3

    def normalised(mean: torch.Tensor) -> torch.Tensor:
        return (x.float() * mean.rsqrt()).to(torch.bfloat16)

    square = x.float().square()
    assert measured(tmp_path, NORMALISED, x, normalised(square.mean(1, keepdim=True))).wrong == 0
    short = square[:, 1:].sum(1, keepdim=True) / 64
    assert measured(tmp_path, NORMALISED, x, normalised(short)).wrong > 100


ABOVE = (
    call("mean", "aten.mean.dim", X, [-1], dtype="float32", shape=(64,)),
    call("first", "aten.select.int", X, 1, 0, dtype="float32", shape=(64,)),
    call("above", "aten.gt.Tensor", {"node": "mean"}, {"node": "first"}, dtype="bool", shape=(64,)),
)


def test_a_comparison_that_rounding_decides_is_not_wrong(tmp_path: Path) -> None:
    """The mean of equal numbers against one of them: each order of adding them up decides otherwise."""
    equal = torch.rand(64, 1, generator=GENERATOR).expand(64, 1000).contiguous()
    for above in (True, False):
        assert measured(tmp_path, ABOVE, equal, torch.full((64,), above)).wrong == 0
    apart = equal.clone()
    apart[:, 0] -= 0.01
    assert measured(tmp_path, ABOVE, apart, torch.full((64,), False)).wrong == 64


# What is finite in one arithmetic only


DIVIDED = (  # float16 has no 1e-9: eager divides by zero
    call("add", "aten.add.Tensor", X, 1e-9, dtype="float16", shape=(4,)),
    call("root", "aten.rsqrt.default", {"node": "add"}, dtype="float16", shape=(4,)),
    call("times", "aten.mul.Tensor", X, {"node": "root"}, dtype="float16", shape=(4,)),
)


def test_nan_that_only_eager_has_are_counted_and_their_operator_is_named(tmp_path: Path) -> None:
    x = torch.tensor([0.0, 1.0, 0.0, 4.0], dtype=torch.float16)
    kernel = x.float() * torch.rsqrt(x.float() + 1e-9)
    result = evaluated(tmp_path, DIVIDED, x, kernel.half())
    (output,) = result.outputs
    assert (output.wrong, output.misplaced, output.lost, output.eager_lost) == (0, 2, 0, 2)
    assert result.begins == "root"
    eager = x * torch.rsqrt(x + 1e-9)
    as_eager = evaluated(tmp_path, DIVIDED, x, eager)
    assert (as_eager.outputs[0].misplaced, as_eager.outputs[0].lost, as_eager.begins) == (0, 2, "")


def test_an_operator_that_returns_memory_that_it_has_not_written(tmp_path: Path) -> None:
    node = call("half", "aoti_debug_test_region.half_filled.default", X, dtype="float32", shape=(64,))
    graph = Graph("", MODEL, (Node("x", NodeKind.INPUT, types=typed("float32", 64)), node), ())
    x = torch.ones(64)
    tensors = {"x": x, "half": torch.cat((x[:32], torch.full((32,), 1e30)))}
    for name, tensor in tensors.items():
        saved_tensors.save(tmp_path / f"{name}.safetensors", name, tensor)
    given, written = (
        KnownValue(ValueKey(name), Recorded("0.0", name, str(tmp_path / f"{name}.safetensors"))) for name in tensors
    )

    @torch.library.custom_op("aoti_debug_test_region::half_filled", mutates_args={})
    def half_filled(x: torch.Tensor) -> torch.Tensor:
        filled = torch.empty_like(x)
        filled[:32] = x[:32]
        return filled

    half_filled.register_fake(torch.empty_like)
    region = Region(
        launch="0.0", launches=("0.0",), graph="", function=MODEL, nodes=("half",), inputs=(given,), outputs=(written,)
    )
    result = RegionEvaluator(Reference(FORMAT, "2.13", (graph,)), "cpu").measure(region)
    assert result.failure == NOT_REPEATABLE


def test_an_operator_that_draws_random_numbers_of_its_own(tmp_path: Path) -> None:
    node = call("noisy", "aoti_debug_test_region.noisy.default", X, dtype="float32", shape=(64,))
    graph = Graph("", MODEL, (Node("x", NodeKind.INPUT, types=typed("float32", 64)), node), ())
    tensors = {"x": torch.ones(64), "noisy": torch.ones(64) + torch.rand(64, generator=GENERATOR)}
    for name, tensor in tensors.items():
        saved_tensors.save(tmp_path / f"{name}.safetensors", name, tensor)
    given, written = (
        KnownValue(ValueKey(name), Recorded("0.0", name, str(tmp_path / f"{name}.safetensors"))) for name in tensors
    )

    @torch.library.custom_op("aoti_debug_test_region::noisy", mutates_args={})
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)

    noisy.register_fake(torch.empty_like)
    region = Region(
        launch="0.0", launches=("0.0",), graph="", function=MODEL, nodes=("noisy",), inputs=(given,), outputs=(written,)
    )
    result = RegionEvaluator(Reference(FORMAT, "2.13", (graph,)), "cpu").measure(region)
    assert result.failure == NOT_REPEATABLE, "its noise is no rounding that grows"
