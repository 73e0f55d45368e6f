"""A tensor file as the runtime writes it: where it lies in the run, and the bytes before the elements.

The Python twin of runtime_shims/safetensors_file.h; tests compare what both write.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from aoti_debug import dtypes
from aoti_debug.abi import Phase
from aoti_debug.dtypes import Category
from aoti_debug.rundir.records import LaunchKey
from aoti_debug.values import Layout

_LONGEST_NAME = 255
_STEPS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)
_MASK = 2**64 - 1
_CHUNK = 1 << 22  # bytes, a multiple of 8


def is_storable(dtype: str) -> bool:
    """Whether tensors of a dtype are saved: quantized ones are not."""
    known = dtypes.named(dtype)
    return known is not None and bool(known.safetensors)


def tensor_path(key: LaunchKey, phase: Phase, kernel: str, argument: str, device: str) -> str:
    """Relative to the run: "tensors/0/0003_relu/before_launch_relu_buf4_cpu.safetensors"."""
    call = str(key).partition(".")[0]
    when = "before" if phase is Phase.BEFORE else "after"
    folder = _file_name(f"{key.launch:04}_{escaped(kernel)}", "")
    file = _file_name(f"{when}_launch_{escaped(kernel)}_{escaped(argument)}_{device}", ".safetensors")
    return f"tensors/{call}/{folder}/{file}"


def escaped(name: str) -> str:
    """Bytes outside of [A-Za-z0-9._,=@:+-] as %XX."""
    return re.sub(rb"[^A-Za-z0-9._,=@:+-]", lambda found: b"%%%02X" % found[0][0], name.encode()).decode()


def _file_name(name: str, extension: str) -> str:
    """A name that is too long is cut and ends in "~" and 8 digits of its hash."""
    if len(name) + len(extension) <= _LONGEST_NAME:
        return name + extension
    first, _ = content_hashes(memoryview(name.encode()))
    return f"{name[: _LONGEST_NAME - len(extension) - 9]}~{first >> 32:08x}{extension}"


def header(name: str, layout: Layout) -> bytes:
    """What comes before the elements of a tensor whose dtype is storable: length, JSON, padding."""
    dtype = dtypes.named(layout.dtype)
    assert dtype is not None
    parts = dtype.stored_parts
    shape = list(layout.shape)
    if parts != 1 and (dtype.category is Category.COMPLEX or not shape):
        shape.append(2)
    elif parts != 1:
        shape[-1] *= parts
    metadata = {
        "dtype": dtype.torch_name,
        "format": "1",
        "shape": _compact(list(layout.shape)),
        "storage_bytes": str(layout.storage_bytes),
        "storage_offset": str(layout.storage_offset),
        "strides": _compact(list(layout.strides)),
    }
    described = {"dtype": dtype.safetensors, "shape": shape, "data_offsets": [0, layout.bytes]}
    text = _compact({"__metadata__": metadata, name: described}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def content_hashes(data: memoryview) -> tuple[int, int]:
    """TensorFile.hash of a tensor's bytes (row-major), as runtime_shims/content_hash.h defines it."""
    sums = [0, 0]
    for words, first in _words(data):
        place = np.arange(first + 1, first + 1 + len(words), dtype=np.uint64)
        for which, step in enumerate(_STEPS):
            sums[which] += int(np.add.reduce(_mix(words + place * np.uint64(step)), dtype=np.uint64))
    finished = _mix(np.array([(total + len(data)) & _MASK for total in sums], dtype=np.uint64))
    return int(finished[0]), int(finished[1])


def _words(data: memoryview) -> Iterator[tuple[NDArray[np.uint64], int]]:
    """64-bit words, the last one padded with zeros, and the index of the first."""
    for start in range(0, len(data), _CHUNK):
        chunk = data[start : start + _CHUNK]
        whole = chunk if len(chunk) % 8 == 0 else bytes(chunk) + bytes(-len(chunk) % 8)
        yield np.frombuffer(whole, "<u8"), start // 8


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed
