"""The interpreter's values against torch's, on kernels as Inductor writes them and on small ones."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from aoti_debug.repro.templates.interpreter import interpret
from tests.repro import interpreter_inductor_kernels as inductor
from tests.repro import interpreter_kernels as kernels

BLOCK = {"BLOCK": 16}
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def run(
    kernel: object, grid: tuple[int, int, int], arguments: Mapping[str, object], constants: Mapping[str, object]
) -> None:
    """Raises AssertionError if anything is found."""
    seen = interpret(kernel, grid, arguments, constants)
    assert seen.lines() == []


def test_a_persistent_reduction_with_gelu_and_layer_norm() -> None:
    x, bias = torch.randn(32, 64), torch.randn(64)
    expected = torch.nn.functional.layer_norm(torch.nn.functional.gelu(x + bias), [64])
    arguments = {"in_out_ptr0": x, "in_ptr0": bias, "xnumel": 32, "r0_numel": 64}
    run(inductor.triton_per_fused_gelu_native_layer_norm_3, (8, 1, 1), arguments, {"XBLOCK": 4})
    torch.testing.assert_close(x, expected, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_softmax_by_a_helpers_maximum(dtype: torch.dtype) -> None:
    x, out = torch.randn(30, 100).to(dtype), torch.empty(30, 100, dtype=dtype)
    arguments = {"in_ptr0": x, "out_ptr2": out, "xnumel": 30, "r0_numel": 100}
    run(inductor.triton_per_fused__softmax_4, (8, 1, 1), arguments, {"XBLOCK": 4})
    torch.testing.assert_close(out, torch.softmax(x.float(), 1).to(dtype))


def test_a_looped_reduction_by_welford_and_a_maximum_with_its_index() -> None:
    x = torch.randn(6, 300)
    x[2, 17] = x[2, 250] = 9.0
    x[4, 33] = float("nan")
    mean, variance, index = torch.empty(6), torch.empty(6), torch.empty(6, dtype=torch.int64)
    arguments = {"in_ptr0": x, "out_ptr0": mean, "out_ptr1": variance, "out_ptr2": index, "xnumel": 6, "r0_numel": 300}
    run(inductor.triton_red_fused_var_mean_argmax_5, (3, 1, 1), arguments, {"XBLOCK": 2, "R0_BLOCK": 64})
    torch.testing.assert_close(mean, x.mean(1), equal_nan=True)
    torch.testing.assert_close(variance, x.var(1, correction=0), equal_nan=True)
    assert torch.equal(index, x.argmax(1))


def test_a_scan_by_a_helper() -> None:
    x, out = torch.randn(32, 128), torch.empty(32, 128)
    arguments = {"in_ptr0": x, "out_ptr0": out, "xnumel": 128, "r0_numel": 32}
    run(inductor.triton_per_fused_cumsum_12, (2, 1, 1), arguments, {"XBLOCK": 64})
    torch.testing.assert_close(out, x.cumsum(0))
    one, target = torch.randn(16), torch.empty(16)
    run(kernels.reversed_scan, (1, 1, 1), {"x": one, "target": target}, BLOCK)
    assert torch.equal(target, one.flip(0).cummax(0).values.flip(0))


def test_scattered_atomics() -> None:
    index, values = torch.tensor([3, -1, 3, 0]), torch.randn(4, 128)
    one, other = torch.zeros(32, 128), torch.zeros(32, 128)
    arguments = {"in_ptr0": index, "in_ptr1": values, "out_ptr0": one, "out_ptr1": other, "ynumel": 4, "xnumel": 128}
    run(inductor.triton_poi_fused_index_put_10, (2, 1, 1), arguments, {"Y": 4, "X": 64})
    expected = torch.zeros(32, 128).index_add(0, index % 32, values)
    assert torch.equal(one, torch.zeros(32, 128).index_add(0, index % 32, torch.ones(4, 128)))
    torch.testing.assert_close(other, expected)


def test_atomics_of_one_place_follow_one_another() -> None:
    x = torch.tensor([5, -7, 11, 2], dtype=torch.int32)
    target, old = torch.zeros(8, dtype=torch.int32), torch.empty(4, dtype=torch.int32)
    run(kernels.atomics, (1, 1, 1), {"target": target, "old": old, "x": x}, {"BLOCK": 4})
    assert old.tolist() == [0, 5, -2, 9]
    assert target.tolist() == [11, 11, -7, 2, 5, 0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_atomic_extremes_of_floats(dtype: torch.dtype) -> None:
    x = torch.randn(16, dtype=dtype)
    target = torch.tensor([-9.0, 0.5, 9.0, -9.0], dtype=dtype)
    run(kernels.extremes, (1, 1, 1), {"target": target, "x": x}, BLOCK)
    assert target.tolist() == [x[::2].max(), max(x[1::2].max(), 0.5), x[::2].min(), -9.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64])
def test_an_atomic_sum_in_many_types(dtype: torch.dtype) -> None:
    target = torch.zeros(2, dtype=dtype)
    run(kernels.scatter, (2, 1, 1), {"index": torch.arange(32) % 2, "target": target, "n": 32}, BLOCK)
    assert target.tolist() == [16, 16]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
def test_sums_round_as_torchs(dtype: torch.dtype) -> None:
    x, y = (torch.randn(2, 16) * 50).to(dtype)
    target = torch.zeros(16, dtype=dtype)
    run(kernels.add_rounded, (1, 1, 1), {"x": x, "y": y, "target": target, "n": 16}, BLOCK)
    assert torch.equal(target, x + y)


@pytest.mark.parametrize("target", [*FLOATS, torch.int32, torch.int64])
@pytest.mark.parametrize("source", [*FLOATS, torch.int32, torch.uint8])
def test_conversions_round_as_torchs(source: torch.dtype, target: torch.dtype) -> None:
    x = torch.linspace(-300, 300, 64).to(source) if source != torch.uint8 else torch.arange(64, dtype=source)
    out = torch.zeros(64, dtype=target)
    run(kernels.convert, (1, 1, 1), {"x": x, "target": out, "n": 64}, {"BLOCK": 64})
    assert torch.equal(out, x.to(target))


@pytest.mark.parametrize("small", FLOAT8)
@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16, torch.float16])
def test_eight_bit_floats_are_read_exactly_and_written_to_nearest(small: torch.dtype, wide: torch.dtype) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(small)
    read = torch.zeros(256, dtype=wide)
    run(kernels.convert, (1, 1, 1), {"x": every, "target": read, "n": 256}, {"BLOCK": 256})
    assert torch.equal(read.float().nan_to_num(nan=7e7), every.float().nan_to_num(nan=7e7))
    limit = torch.finfo(small).max
    exact = torch.cat([torch.randn(250) * 30, torch.tensor([limit, -limit, 9e9, -9e9, 0.0, -0.0])])
    written = torch.zeros(256, dtype=torch.uint8).view(small)
    run(kernels.convert, (1, 1, 1), {"x": exact.to(wide), "target": written, "n": 256}, {"BLOCK": 256})
    expected = exact.to(wide).float().clamp(-limit, limit).to(small)
    assert torch.equal(written.view(torch.uint8), expected.view(torch.uint8))


def test_floats_out_of_range_saturate_as_integers() -> None:
    x = torch.tensor([3e9, -3e9, float("nan"), float("inf"), -2.7, 2.7, -0.5, 2147483520.0])
    target = torch.zeros(8, dtype=torch.int32)
    run(kernels.convert, (1, 1, 1), {"x": x, "target": target, "n": 8}, {"BLOCK": 8})
    assert target.tolist() == [2**31 - 1, -(2**31), 0, 2**31 - 1, -2, 2, 0, 2147483520]


def test_a_loop_that_depends_on_data() -> None:
    x, target = torch.tensor([6, 1, 27], dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
    run(kernels.collatz, (3, 1, 1), {"x": x, "target": target}, BLOCK)
    assert target.tolist() == [8, 0, 111]


def test_absent_arguments_scalars_and_constants() -> None:
    x, bias, target = torch.randn(16), torch.randn(16), torch.zeros(16)
    arguments = {"x": x, "bias": bias, "target": target, "scale": 0.5}
    run(kernels.optional, (1, 1, 1), arguments, {"HAS": True, **BLOCK})
    assert torch.equal(target, x * 0.5 + bias + 1)
    run(kernels.optional, (1, 1, 1), {**arguments, "bias": None}, {"HAS": False, **BLOCK})
    assert torch.equal(target, x * 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_product_of_matrices(dtype: torch.dtype) -> None:
    a, b, c = torch.randn(16, 32).to(dtype), torch.randn(32, 16).to(dtype), torch.zeros(16, 16)
    run(kernels.matmul, (1, 1, 1), {"a": a, "b": b, "c": c}, {"M": 16, "N": 16, "K": 32})
    torch.testing.assert_close(c, a.float() @ b.float())


def test_assembly_that_is_known() -> None:
    x, target = torch.randn(16), torch.zeros(16)
    run(kernels.by_assembly, (1, 1, 1), {"x": x, "target": target}, BLOCK)
    torch.testing.assert_close(target, x * x + 1)


def test_functions_and_methods_of_the_language() -> None:
    x, target = torch.randn(16), torch.zeros(16)
    run(kernels.of_methods, (1, 1, 1), {"x": x, "target": target}, BLOCK)
    torch.testing.assert_close(target, torch.sigmoid(x) + x.sum() + 4 + x.view(2, 8).max(1).values.sum())


def test_tensor_descriptors() -> None:
    x, target = torch.randn(8, 16), torch.zeros(8, 16)
    run(kernels.described, (1, 1, 1), {"x": x, "target": target}, {"M": 8, "N": 16, "B": 16})
    assert torch.equal(target, x * 2)


def test_a_view_with_an_offset_that_is_not_aligned() -> None:
    bytes_ = torch.zeros(70, dtype=torch.uint8)
    source = torch.frombuffer(bytes_.numpy(), dtype=torch.float32, count=16, offset=3)
    source.copy_(torch.arange(16.0))
    target = torch.zeros(16)
    run(kernels.copy_unmasked, (1, 1, 1), {"source": source, "target": target}, BLOCK)
    assert torch.equal(target, torch.arange(16.0))


def test_operators_of_python_ask_every_element() -> None:
    x, y = torch.randint(-8, 9, (2, 64), dtype=torch.int32)
    target = torch.zeros(64, dtype=torch.int32)
    run(kernels.of_python, (1, 1, 1), {"x": x, "y": y, "target": target, "n": 5}, {"BLOCK": 64})
    picked = (x >= 0) & (x < 5) & ~(y > x)
    assert 0 < picked.sum() < 64
    assert torch.equal(target, torch.where(picked, torch.minimum(x, y), torch.maximum(x, y).clamp(min=3)))
