"""The table of dtypes against torch and against the C++ side's."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from aoti_debug.base import dtypes
from aoti_debug.base.dtypes import Category
from tests import paths

KINDS = {
    "kInteger": {Category.INTEGER},
    "kFloat": {Category.FLOATING},
    "kComplex": {Category.COMPLEX},
    "kBool": {Category.BOOLEAN},
    "kPacked": {Category.PACKED},
    "kUnreadable": {Category.QUANTIZED},
}
OF_THIS_TORCH = [dtype for dtype in dtypes.DTYPES if hasattr(torch, dtype.name)]
FLOATING = [dtype for dtype in dtypes.DTYPES if dtype.category is Category.FLOATING]


def test_the_runtime_has_the_same_table() -> None:
    text = (paths.ROOT / "runtime_shims" / "tensors" / "dtype.cpp").read_text()
    rows = [line.strip(" {},").split(", ") for line in text.splitlines() if line.startswith('    {"')]
    assert len(rows) == len(dtypes.DTYPES)
    for (name, stored, size, parts, kind), dtype in zip(rows, dtypes.DTYPES, strict=True):
        assert name.strip('"') == dtype.name
        assert ("" if stored == "nullptr" else stored.strip('"')) == dtype.safetensors, dtype
        assert (int(size), int(parts)) == (dtype.item_bytes, dtype.stored_parts), dtype
        assert dtype.category in KINDS[kind.removeprefix("Kind::")], dtype


@pytest.mark.parametrize("dtype", FLOATING, ids=lambda d: d.name)
def test_largest_values_are_torchs(dtype: dtypes.Dtype) -> None:
    assert dtype.largest == torch.finfo(getattr(torch, dtype.name)).max
    held = torch.tensor([float("inf")], dtype=torch.float64).to(getattr(torch, dtype.name)).double()
    assert bool(held.isinf()) == dtype.has_infinity


def test_abbreviations_are_those_of_torchs_traces() -> None:
    table = pytest.importorskip("torch.utils._dtype_abbrs", reason="this torch has no such table").dtype_abbrs
    bits = () if hasattr(torch.float32, "abbr") else ("bits",)  # which torch 2.11 names in part, and otherwise
    named = [dtype for dtype in OF_THIS_TORCH if not dtype.name.startswith(bits)]
    expected = {name: short for dtype, short in table.items() if not (name := dtypes.bare_name(dtype)).startswith(bits)}
    assert {name: dtypes.of_name(name).abbreviation for name in expected} == expected  # type: ignore[union-attr]
    known = [dtype for dtype in named if dtype.name not in expected]
    assert [dtype.abbreviation for dtype in known] == [dtype.name for dtype in known]


def test_the_abbreviation_of_a_dtype_that_only_newer_torches_have() -> None:
    newest = dtypes.of_scalar_type(46)
    assert newest is not None
    assert (newest.name, newest.abbreviation) == ("bcomplex32", "bc32")


def test_only_floating_dtypes_have_a_largest_value() -> None:
    assert [dtype for dtype in dtypes.DTYPES if dtype.largest is not None] == FLOATING


def test_categories_are_torchs() -> None:
    for dtype in OF_THIS_TORCH:
        known = getattr(torch, dtype.name)
        if dtype.category not in (Category.PACKED, Category.QUANTIZED):
            assert known.is_floating_point == (dtype.category is Category.FLOATING), dtype
            assert known.is_complex == (dtype.category is Category.COMPLEX), dtype


@pytest.mark.parametrize("dtype", [d for d in dtypes.DTYPES if d.numpy], ids=lambda d: d.name)
def test_numpy_has_the_same_type(dtype: dtypes.Dtype) -> None:
    array = np.zeros(1, dtype=dtype.numpy)
    assert (array.dtype.name, array.itemsize) == (dtype.name, dtype.item_bytes)
    assert torch.from_numpy(array).dtype is getattr(torch, dtype.name)


def test_look_ups() -> None:
    half = dtypes.of_name("torch.float16")
    assert half is not None
    assert half is dtypes.of_name("float16") is dtypes.of_scalar_type(5)
    assert (half.torch_name, half.item_bytes) == ("torch.float16", struct.calcsize("e"))
    assert dtypes.bare_name(torch.bfloat16) == dtypes.bare_name("torch.bfloat16") == "bfloat16"
    assert (dtypes.item_bytes("complex64"), dtypes.is_integer("uint16"), dtypes.is_integer("bool")) == (8, True, False)
    names = ("bool", "float4_e2m1fn_x2", "bits8", "qint8")
    assert [dtype.has_values for dtype in map(dtypes.of_name, names) if dtype] == [True, *[False] * 3]


def test_a_dtype_of_a_newer_torch() -> None:
    assert dtypes.name_of_number(99) == "dtype99"
    assert dtypes.of_scalar_type(99) is dtypes.of_scalar_type(-1) is dtypes.of_name("dtype99") is None
    assert dtypes.item_bytes("dtype99") == 0
    assert not dtypes.is_integer("dtype99")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("float8_e5m2", True), ("complex64", True), ("int8", False), ("bool", False), ("none", False)],
)
def test_dtypes_with_fractions(name: str, expected: bool) -> None:
    assert dtypes.has_fractions(name) is expected
