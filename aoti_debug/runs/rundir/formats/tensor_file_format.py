"""The tensor files of the runtime: their paths in the run directory, the header before the elements, their content.

The Python counterpart of runtime_shims/saving/safetensors_file.h; tests compare the output of both.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base import dtypes
from aoti_debug.base.abi import Phase
from aoti_debug.base.dtypes import Category
from aoti_debug.package.argument_values import Layout
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.formats.stored_tensor import file_of, reference_at

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALIGNMENT = 64  # bytes, of the elements in a file: what torch's allocator gives, so that they can be mapped
_LENGTH = struct.Struct("<Q")
_LONGEST_NAME = 255
_STEPS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)
_MASK = 2**64 - 1
_CHUNK = 1 << 22  # bytes, a multiple of 8
_COPIED = 16 << 20  # bytes at once


def is_storable(dtype: str) -> bool:
    """True if tensors of a dtype can be saved; quantized ones cannot."""
    known_dtype = dtypes.of_name(dtype)
    return known_dtype is not None and bool(known_dtype.safetensors)


def tensor_path(key: LaunchKey, phase: Phase, kernel: str, argument: str, device: str) -> str:
    """The path in the run directory: "tensors/0/0003_relu/before_launch_relu_buf4_cpu.safetensors"."""
    call = str(key).partition(".")[0]
    phase_name = "before" if phase is Phase.BEFORE else "after"
    folder = _file_name(f"{key.launch:04}_{escape(kernel)}", "")
    file = _file_name(f"{phase_name}_launch_{escape(kernel)}_{escape(argument)}_{device}", ".safetensors")
    return f"tensors/{call}/{folder}/{file}"


def escape(name: str) -> str:
    """A name in which bytes outside of [A-Za-z0-9._,=@:+-] are written as %XX."""
    return re.sub(rb"[^A-Za-z0-9._,=@:+-]", lambda match: b"%%%02X" % match[0][0], name.encode()).decode()


def _file_name(name: str, extension: str) -> str:
    """A file name; one that is too long is shortened and ends in "~" and 8 digits of its hash."""
    if len(name) + len(extension) <= _LONGEST_NAME:
        return name + extension
    first, _ = content_hashes(memoryview(name.encode()))
    return f"{name[: _LONGEST_NAME - len(extension) - 9]}~{first >> 32:08x}{extension}"


def header(name: str, layout: Layout) -> bytes:
    """The bytes before the elements of a tensor whose dtype is storable: length, JSON, padding."""
    dtype = dtypes.of_name(layout.dtype)
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
    entry = {"dtype": dtype.safetensors, "shape": shape, "data_offsets": [0, layout.bytes]}
    text = _compact({"__metadata__": metadata, name: entry}).encode()
    text += b" " * (-(_LENGTH.size + len(text)) % ALIGNMENT)
    return _LENGTH.pack(len(text)) + text


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def chunks(path: Path) -> Iterator[bytes | memoryview]:
    """The content of the tensor file of a saved tensor, also of one that is a reference to a weight.

    Raises:
        RunDirError: the file that is referred to is gone or has changed, or the reference is damaged.
        OSError: the tensor file cannot be read.
    """
    reference = reference_at(path)
    if reference is None:
        with file_of(path).open("rb") as opened:
            while data := opened.read(_COPIED):
                yield data
        return
    elements = reference.elements()
    yield header(reference.name, reference.layout)
    for start in range(0, elements.size, _COPIED):
        yield elements[start : start + _COPIED].data


def content_hashes(data: memoryview) -> tuple[int, int]:
    """TensorFile.hash of a tensor's bytes (row-major), defined in runtime_shims/formats/content_hash.h."""
    import numpy as np

    sums = [0, 0]
    for words, first in _words(data):
        positions = np.arange(first + 1, first + 1 + len(words), dtype=np.uint64)
        for index, step in enumerate(_STEPS):
            sums[index] += int(np.add.reduce(_mix(words + positions * np.uint64(step)), dtype=np.uint64))
    finished = _mix(np.array([(total + len(data)) & _MASK for total in sums], dtype=np.uint64))
    return int(finished[0]), int(finished[1])


def _words(data: memoryview) -> Iterator[tuple[NDArray[np.uint64], int]]:
    """Chunks of 64-bit words, the last word padded with zeros, each with the index of its first word."""
    import numpy as np

    for start in range(0, len(data), _CHUNK):
        chunk = data[start : start + _CHUNK]
        padded = chunk if len(chunk) % 8 == 0 else bytes(chunk) + bytes(-len(chunk) % 8)
        yield np.frombuffer(padded, "<u8"), start // 8


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    import numpy as np

    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed
