from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from aoti_debug.base import dtypes
from aoti_debug.base.errors import RunDirError
from aoti_debug.runs.rundir.formats.stored_tensor import numbers, open_tensor
from tests.saved_tensors import save, stored
from tests.torch_features import BCOMPLEX32

FLOAT8 = [dtype.name for dtype in dtypes.DTYPES if dtype.name.startswith("float8_")]
OTHERS = ["float16", "bfloat16", "float32", "float64", "int8", "uint16", "int64", "bool", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", FLOAT8)
def test_every_byte_is_the_number_that_torch_reads(dtype: str) -> None:
    data = bytes(range(256))
    expected = torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype)).to(torch.float32).numpy()
    np.testing.assert_array_equal(numbers(data, dtype), expected)
    assert not np.any(np.signbit(numbers(data, dtype)) != np.signbit(expected), where=~np.isnan(expected))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_of_16_bits_is_the_one_that_torch_reads(dtype: str) -> None:
    data = np.arange(1 << 16, dtype="<u2").tobytes()
    expected = torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype)).to(torch.float32).numpy()
    np.testing.assert_array_equal(numbers(data, dtype).astype(np.float32), expected)


@pytest.mark.parametrize("dtype", [*OTHERS, "complex32", *BCOMPLEX32, *FLOAT8])
def test_a_file(tmp_path: Path, dtype: str) -> None:
    value = torch.tensor([[0.0, 1.0, 2.0], [0.5, 4.0, 1.0]]).to(getattr(torch, dtype))
    parts = {"complex32": torch.float16, "bcomplex32": torch.bfloat16, "complex128": torch.float64}
    pairs = parts.get(dtype)  # of real numbers, in the file
    in_file = None if pairs is None else torch.view_as_real(value.t().to(torch.complex128)).to(pairs).contiguous()
    save(tmp_path / "t.safetensors", "x", value.t(), stored=in_file)
    opened = open_tensor(tmp_path / "t.safetensors")
    assert (opened.dtype, opened.numel) == (dtype, 6)
    expected = value.t().to(torch.complex128 if value.is_complex() else torch.float64).flatten()
    assert opened.numbers().tolist() == expected.tolist()
    assert opened.numbers(1, 5, 2).tolist() == expected[1:5:2].tolist()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_scalars_and_empty_tensors(tmp_path: Path, shape: tuple[int, ...]) -> None:
    save(tmp_path / "t.safetensors", "x", torch.full(shape, 7.0))
    assert open_tensor(tmp_path / "t.safetensors").numbers().tolist() == [7.0] * math.prod(shape)


@pytest.mark.parametrize("dtype", ["bits8", "uint4", "float4_e2m1fn_x2", "qint8", "float99"])
def test_dtypes_without_numbers(dtype: str) -> None:
    with pytest.raises(TypeError, match=f"the elements of {dtype} cannot be read as numbers"):
        numbers(b"\0\0", dtype)


def test_a_large_file_is_read_piece_by_piece(tmp_path: Path) -> None:
    save(tmp_path / "t.safetensors", "x", torch.arange(1000))
    opened = open_tensor(tmp_path / "t.safetensors")
    base: Any = opened.data.base
    assert isinstance(base, memoryview)
    assert isinstance(base.obj, mmap.mmap)
    assert opened.numbers(990).tolist() == list(range(990, 1000))


def test_the_same_from_memory() -> None:
    assert stored(torch.tensor([1.5, 2.5]).to(torch.bfloat16)).numbers().tolist() == [1.5, 2.5]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    with pytest.raises(RunDirError, match="is missing"):
        open_tensor(path)
    with pytest.raises(RunDirError, match=r"a\\nb\.safetensors is missing"):
        open_tensor(tmp_path / "a\nb.safetensors")
    path.write_bytes(b"\xff" * 40)
    with pytest.raises(RunDirError, match="is damaged"):
        open_tensor(path)
    save_file({"x": torch.ones(2)}, path)
    with pytest.raises(RunDirError, match="was not written by aoti-debug"):
        open_tensor(path)
    save(path, "x", torch.ones(2), shape="[3]")
    with pytest.raises(RunDirError, match="its metadata contradicts its data"):
        open_tensor(path)
    save(path, "x", torch.ones(2), shape="[true]")
    with pytest.raises(RunDirError, match="is damaged"):
        open_tensor(path)
    save(path, "x", torch.ones(2))
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(RunDirError, match="is damaged"):
        open_tensor(path)
