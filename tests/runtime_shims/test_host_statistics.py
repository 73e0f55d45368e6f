"""Statistics and content hash of host tensors against numpy, for every dtype and for views."""

from __future__ import annotations

import ctypes
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aoti_debug.base import dtypes
from tests.runtime_shims.reference_hash import content_hash
from tests.torch_features import BCOMPLEX32

DTYPES = {dtype.name: number for number, dtype in enumerate(dtypes.DTYPES)}
FLOATS = ("float16", "bfloat16", "float32", "float64")
FLOAT8 = ("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
COMPLEX = ("complex32", "complex64", "complex128", *BCOMPLEX32)


@pytest.fixture(scope="module")
def lib(library: Path) -> Any:
    return ctypes.CDLL(str(library))


class Measured:
    """What the runtime says about a tensor."""

    def __init__(self, lib: Any, tensor: torch.Tensor) -> None:
        stats = ctypes.create_string_buffer(120)
        sizes = (ctypes.c_int64 * 64)(*tensor.shape)
        strides = (ctypes.c_int64 * 64)(*tensor.stride())
        number = DTYPES[dtypes.bare_name(tensor.dtype)]
        view = (ctypes.c_void_p(tensor.data_ptr()), number, tensor.dim(), sizes, strides)
        lib.h_statistics(*view, ctypes.c_uint64(tensor.element_size()), stats)
        hashes = (ctypes.c_uint64 * 2)()
        lib.h_hash(*view, ctypes.c_uint64(tensor.element_size()), hashes)
        self.hashes = tuple(hashes)
        fields = struct.unpack("<IIHBBB3xQQQQQQQQQddQII", stats.raw)
        self.integer, self.numel, self.nan, self.pos_inf, self.neg_inf, self.zero = fields[5:11]
        self.min, self.max = (self._number(bits) for bits in fields[11:13])
        self.min_index, self.max_index, self.mean, self.std, self.hash = fields[13:18]

    def _number(self, bits: int) -> float | int:
        if self.integer == 2:
            return bits
        if self.integer == 1:
            return bits - (1 << 64) if bits >> 63 else bits
        value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
        return value


def row_major_bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def numbers(tensor: torch.Tensor) -> Any:
    """A numpy array with the values (the magnitudes of complex ones), exact."""
    flat = tensor.contiguous().reshape(-1)
    if flat.is_complex():
        return flat.to(torch.complex128).abs().numpy()
    if flat.dtype.is_floating_point:
        return flat.to(torch.float64).numpy()
    return flat.to(torch.int64).numpy() if flat.dtype != torch.uint64 else flat.numpy()


def check(lib: Any, tensor: torch.Tensor) -> Measured:
    got, values = Measured(lib, tensor), numbers(tensor)
    finite = np.isfinite(values)
    assert got.numel == values.size
    assert got.nan == np.isnan(values).sum()
    assert got.pos_inf == (values == np.inf).sum()
    assert got.neg_inf == (values == -np.inf).sum()
    assert got.zero == (values == 0).sum()
    if finite.any():
        chosen = values[finite]
        assert got.min == pytest.approx(chosen.min(), rel=1e-15)
        assert got.max == pytest.approx(chosen.max(), rel=1e-15)
        if not tensor.is_complex():
            assert (got.min, got.max) == (chosen.min(), chosen.max())
            assert got.min_index == np.flatnonzero(values == chosen.min())[0]
            assert got.max_index == np.flatnonzero(values == chosen.max())[0]
        wide = chosen.astype(np.longdouble)
        spread = float(np.abs(wide).max())
        assert got.mean == pytest.approx(float(wide.mean()), rel=1e-12, abs=spread * 1e-14)
        assert got.std == pytest.approx(float(wide.std()), rel=1e-9, abs=spread * 1e-13)
    else:
        assert math.isnan(got.mean)
        assert math.isnan(got.std)
    data = row_major_bytes(tensor)
    assert got.hash == content_hash(data)
    assert got.hashes == (content_hash(data), content_hash(data, 0xD1B54A32D192ED03))
    return got


def sample(name: str, numel: int, seed: int = 0) -> torch.Tensor:
    """Random values over the dtype's range, NaN and infinities included where it has them."""
    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, name)
    if name in FLOAT8:
        return torch.randint(0, 256, (numel,), dtype=torch.uint8, generator=generator).view(dtype)
    if name in INTEGERS:
        raw = torch.randint(0, 256, (numel * dtype.itemsize,), dtype=torch.uint8, generator=generator)
        return raw.view(dtype)
    if name == "bool":
        return torch.randint(0, 2, (numel,), dtype=torch.bool, generator=generator)
    if name in COMPLEX:
        parts = torch.randn(numel, 2, dtype=torch.float64, generator=generator)
        parts.view(-1)[torch.randint(0, 2 * numel, (numel // 10,), generator=generator)] = math.inf
        parts.view(-1)[torch.randint(0, 2 * numel, (numel // 10,), generator=generator)] = math.nan
        return torch.view_as_complex(parts).to(dtype)
    values = torch.randn(numel, dtype=torch.float64, generator=generator) * 100
    for special in (math.nan, math.inf, -math.inf, 0.0, -0.0):
        values[torch.randint(0, numel, (numel // 50 + 1,), generator=generator)] = special
    return values.to(dtype)


@pytest.mark.parametrize("numel", [1, 7, 63, 2049, 300_001])
@pytest.mark.parametrize("name", [*FLOATS, *FLOAT8, *INTEGERS, *COMPLEX, "bool"])
def test_every_dtype(lib: Any, name: str, numel: int) -> None:
    check(lib, sample(name, numel))


@pytest.mark.parametrize("name", [*FLOATS, "int64", "uint64", "int32", "uint8"])
def test_finite_values_only(lib: Any, name: str) -> None:
    tensor = torch.arange(5000).to(getattr(torch, name))
    check(lib, tensor)
    check(lib, torch.arange(4999, -1, -1).to(tensor.dtype))


def all_bytes(name: str) -> torch.Tensor:
    return torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))


@pytest.mark.parametrize("name", FLOAT8)
def test_every_value_of_float8(lib: Any, name: str) -> None:
    check(lib, all_bytes(name))
    for byte in range(256):
        check(lib, all_bytes(name)[byte : byte + 1])


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_value_of_16_bits(lib: Any, name: str) -> None:
    every = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(getattr(torch, name))
    check(lib, every)
    for start in range(0, 65536, 4096):  # odd lengths take the scalar ways
        check(lib, every[start : start + 13])


def views() -> dict[str, torch.Tensor]:
    base = torch.randn(7, 33, 21, dtype=torch.float64)
    return {
        "transposed": base.transpose(0, 2),
        "sliced": base[1:6:2, 3:30:3, ::5],
        "offset": base[3:],
        "expanded": torch.randn(5, 1, 3).expand(5, 400, 3),
        "scalar expanded": torch.tensor(2.5).expand(3000),
        "permuted": base.permute(1, 2, 0),
        "channels last": torch.randn(2, 3, 16, 17).to(memory_format=torch.channels_last),
        "row": base[:, 5, :],
        "many dims": torch.randn(*(2,) * 12).permute(*reversed(range(12))),
        "size 1 dims": torch.randn(4, 1, 6, 1).transpose(0, 2),
        "bytes": torch.randint(0, 255, (301, 77), dtype=torch.uint8).t(),
        "complex": torch.randn(30, 40, dtype=torch.complex128).t(),
        "large": torch.randn(1000, 700).t(),
        "0-d": torch.tensor(-3.5),
        "empty": torch.empty(3, 0, 5),
        "empty transposed": torch.empty(3, 0, 5).transpose(0, 2),
    }


@pytest.mark.parametrize("name", views())
def test_views(lib: Any, name: str) -> None:
    check(lib, views()[name])


def test_large_values_of_double(lib: Any) -> None:
    got = check(lib, torch.tensor([1e300, -1e300, 1e300, 5e299], dtype=torch.float64))
    assert got.max == 1e300
    got = check(lib, torch.full((5000,), 1.7e308, dtype=torch.float64))
    assert got.std == 0
    assert got.mean == pytest.approx(1.7e308)
    tensor = torch.randn(203_001, dtype=torch.float64)
    tensor[77] = 1e300
    got = Measured(lib, tensor)
    wide = tensor.numpy().astype(np.longdouble)
    assert got.mean == pytest.approx(float(wide.mean()), rel=1e-12)
    assert got.std == pytest.approx(float(wide.std()), rel=1e-9)


def test_small_values_of_double(lib: Any) -> None:
    tensor = torch.tensor([1e-300, 3e-300, 2e-300, 2e-300], dtype=torch.float64)
    got = Measured(lib, tensor)
    assert got.mean == pytest.approx(2e-300, rel=1e-14)
    assert got.std == pytest.approx(math.sqrt(0.5) * 1e-300, rel=1e-12)
    assert got.zero == 0
    assert Measured(lib, torch.tensor([5e-324, 0.0], dtype=torch.float64)).max == 5e-324


def test_data_far_from_zero_lose_nothing(lib: Any) -> None:
    values = torch.randn(100_000, dtype=torch.float64) + 1e9
    got = Measured(lib, values)
    assert got.std == pytest.approx(float(values.numpy().astype(np.longdouble).std()), rel=1e-9)


def test_exact_integers(lib: Any) -> None:
    got = check(lib, torch.tensor([2**53 + 1, 2**53, -(2**53) - 1]))
    assert (got.max, got.min) == (2**53 + 1, -(2**53) - 1)
    got = check(lib, torch.tensor([-(2**63), 2**63 - 1, 0]))
    assert (got.min, got.max) == (-(2**63), 2**63 - 1)
    got = check(lib, torch.tensor([2**64 - 1, 2**63, 1], dtype=torch.uint64))
    assert (got.min, got.max, got.integer) == (1, 2**64 - 1, 2)


def test_one_nan_hides_nothing(lib: Any) -> None:
    tensor = torch.arange(10_000, dtype=torch.float32)
    tensor[5000] = math.nan
    got = check(lib, tensor)
    assert (got.min, got.max, got.nan) == (0, 9999, 1)


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_no_finite_value(lib: Any, special: float) -> None:
    got = check(lib, torch.full((70,), special))
    assert got.min_index == got.max_index == 0


def test_bool_bytes_other_than_one_are_true(lib: Any) -> None:
    got = Measured(lib, torch.tensor([0, 1, 2, 255], dtype=torch.uint8).view(torch.bool))
    assert (got.zero, got.min, got.max, got.mean) == (1, 0, 1, 0.75)


def test_denormals_count_under_flush_to_zero(lib: Any) -> None:
    tensor = torch.tensor([1e-40, 0.0])
    assert torch.set_flush_denormal(True)
    try:
        got = Measured(lib, tensor)
        flushes = (tensor[:1] * 1.0).item() == 0
    finally:
        torch.set_flush_denormal(False)
    assert flushes  # the setting of the host came back
    assert got.zero == 1
    assert got.max == pytest.approx(1e-40, rel=1e-4)


def test_result_does_not_depend_on_the_number_of_threads(lib: Any) -> None:
    tensor = torch.randn(1_000_003)
    openmp = ctypes.CDLL(None)
    before = openmp.omp_get_max_threads()
    found = []
    for threads in (1, 2, 3):
        openmp.omp_set_num_threads(threads)
        got = Measured(lib, tensor)
        found.append((got.mean, got.std, got.hash, got.min_index))
    openmp.omp_set_num_threads(before)
    assert len(set(found)) == 1
