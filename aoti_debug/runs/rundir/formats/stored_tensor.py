"""Reads the numbers or the bytes of a saved tensor, also of one that is a reference to a weight, without torch."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base import dtypes
from aoti_debug.base.dtypes import Category
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.wording import printable
from aoti_debug.runs.rundir.formats import weight_reference

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AGAIN = "run the package again at level 1"


@dataclass(frozen=True)
class FileLayout:
    """The layout that a tensor file's metadata contains."""

    dtype: str  # "float32"
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # elements
    storage_offset: int  # elements
    storage_bytes: int

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class StoredTensor:
    """The elements of a tensor, row-major.

    Attributes:
        data: their bytes; of a file, they are read from the disk when they are used.
        numel: their number.
    """

    data: NDArray[np.uint8]
    dtype: str
    numel: int

    def numbers(self, start: int = 0, stop: int | None = None, step: int = 1) -> NDArray[Any]:
        """The elements `start:stop:step` as numpy numbers.

        Raises:
            TypeError: the elements of its dtype cannot be read as numbers (quantized, packed).
        """
        item_bytes = max(self.data.size // max(self.numel, 1), 1)
        items = self.data.reshape(self.numel, item_bytes)[start:stop:step]
        return numbers(items.tobytes(), self.dtype)


def reference_at(path: Path) -> weight_reference.WeightReference | None:
    """The reference to a weight that a path names; None for a tensor file, or where one lies beside the reference.

    Raises:
        RunDirError: it is missing or damaged; the message names it.
    """
    is_needed = weight_reference.is_reference(path) and not weight_reference.is_beside(path)
    return weight_reference.read(path) if is_needed else None


def missing_weight(path: Path) -> str:
    """The reason why a tensor is not to be had that a run refers to: its weights are gone; "" if it is, or is no such.

    Raises:
        RunDirError: the reference is missing or damaged; the message names it.
    """
    reference = reference_at(path)
    try:
        if reference is not None:
            reference.checked_file()
    except RunDirError as error:
        return str(error)
    return ""


def open_tensor(path: Path) -> StoredTensor:
    """Opens a tensor file, or what a reference to a weight refers to.

    Raises:
        RunDirError: the file is missing or damaged; the message names it.
    """
    import numpy as np

    reference = reference_at(path)
    if reference is not None:
        return StoredTensor(reference.elements(), reference.dtype, math.prod(reference.shape))
    path = file_of(path)
    with opened_file(path, "np") as (_, layout), path.open("rb") as opened:
        header = 8 + int.from_bytes(opened.read(8), "little")
        # Not numpy's memmap: it resolves the path, and each of its slices is slower to make.
        whole = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        data: NDArray[np.uint8] = np.frombuffer(whole, np.uint8, offset=header)
    known = dtypes.of_name(layout.dtype)
    if known is not None and data.size != layout.numel * known.item_bytes:
        raise RunDirError(f"{printable(str(path))} is damaged: its metadata contradicts its data", hint=AGAIN)
    return StoredTensor(data, layout.dtype, layout.numel)


def file_of(path: Path) -> Path:
    """The tensor file of a path: itself, or the one that lies beside a reference."""
    return weight_reference.beside(path) if weight_reference.is_reference(path) else path


def layout_of(path: Path) -> FileLayout:
    """The layout of a saved tensor.

    Raises:
        RunDirError: the file is missing or damaged; the message names it.
    """
    reference = reference_at(path)
    if reference is None:
        with opened_file(file_of(path), "np") as (_, layout):
            return layout
    return FileLayout(
        reference.dtype, reference.shape, reference.strides, reference.storage_offset, reference.storage_bytes
    )


def bytes_of(path: Path) -> int:
    """The size in bytes of a saved tensor: of its file, or of what a reference refers to.

    Raises:
        RunDirError: the reference is missing or damaged.
        OSError: the tensor file is missing.
    """
    reference = reference_at(path)
    return file_of(path).stat().st_size if reference is None else reference.nbytes


def elements_at(path: Path) -> tuple[Path, int]:
    """The file that has the elements of a saved tensor in row-major order, and the byte at which they begin.

    Raises:
        RunDirError: the file is missing or damaged, or has them in another order; the message names it.
    """
    reference = reference_at(path)
    if reference is None:
        layout_of(path)  # it can be read
        with file_of(path).open("rb") as opened:
            return file_of(path), 8 + int.from_bytes(opened.read(8), "little")
    if not reference.is_row_major:
        raise RunDirError(f"{printable(str(path))} refers to a weight that is not row-major in its file", hint=AGAIN)
    return reference.checked_file(), reference.begin


@contextmanager
def opened_file(path: Path, framework: str) -> Iterator[tuple[Any, FileLayout]]:
    """Yields the `safetensors.safe_open` of a tensor file, and its layout.

    Args:
        framework: "np" or "pt".

    Raises:
        RunDirError: the file is missing or damaged, also if that shows only in the body; the message names it.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework=framework) as file:
            yield file, _read_layout(path, file.metadata() or {})
    except FileNotFoundError as error:
        raise RunDirError(f"{printable(str(path))} is missing", hint=AGAIN) from error
    except (SafetensorError, OSError, ValueError) as error:
        raise RunDirError(f"{printable(str(path))} is damaged: {error}", hint=AGAIN) from error


def _read_layout(path: Path, metadata: Mapping[str, str]) -> FileLayout:
    """The layout in the metadata of a tensor file.

    Raises:
        RunDirError: another program wrote the file.
        ValueError: the metadata are damaged.
    """
    try:
        return FileLayout(
            dtype=dtypes.bare_name(metadata["dtype"]),
            shape=_integers(metadata["shape"]),
            strides=_integers(metadata["strides"]),
            storage_offset=int(metadata["storage_offset"]),
            storage_bytes=int(metadata["storage_bytes"]),
        )
    except KeyError as error:
        raise RunDirError(
            f"{printable(str(path))} was not written by aoti-debug: its metadata has no {error}", hint=AGAIN
        ) from error


def _integers(text: str) -> tuple[int, ...]:
    return json_data.from_data(tuple[int, ...], json_data.parse_value(text))


def numbers(data: bytes, dtype: str) -> NDArray[Any]:
    """Elements as numpy numbers of the same value: floats of 8 and 16 bits that numpy lacks become float32.

    Args:
        data: whole elements, row-major, little-endian.
        dtype: "float8_e5m2".

    Raises:
        TypeError: the elements of the dtype cannot be read as numbers, or it is not known.
    """
    import numpy as np

    info = dtypes.of_name(dtype)
    if info is None or not info.has_values:
        raise TypeError(f"the elements of {dtype} cannot be read as numbers")
    if info.numpy:
        return np.frombuffer(data, dtype=info.numpy)
    if info.safetensors == "BF16":
        parts = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    elif info.safetensors == "F16":
        parts = np.frombuffer(data, "<f2").astype("<f4")
    else:
        return _float8_values(info.name)[np.frombuffer(data, np.uint8)]
    return parts.view("<c8") if info.category is Category.COMPLEX else parts


@dataclass(frozen=True)
class _Float8:
    """A format of 8 bits: one sign, some of exponent, the others of mantissa.

    Attributes:
        not_numbers: the bytes that are NaN; 0x80 where there is no negative zero.
        infinities: the bytes of +Inf and -Inf.
    """

    exponent_bits: int
    bias: int
    not_numbers: frozenset[int]
    infinities: tuple[int, ...] = ()

    def value(self, byte: int) -> float:
        """The number of a byte."""
        if byte in self.not_numbers:
            return math.nan
        sign = -1.0 if byte & 0x80 else 1.0
        if byte in self.infinities:
            return sign * math.inf
        mantissa_bits = 7 - self.exponent_bits
        exponent, mantissa = (byte & 0x7F) >> mantissa_bits, byte & ((1 << mantissa_bits) - 1)
        leading, power = (1, exponent) if exponent else (0, 1)
        return sign * math.ldexp(leading + mantissa / (1 << mantissa_bits), power - self.bias)


_FLOAT8 = {
    "float8_e5m2": _Float8(5, 15, frozenset({*range(0x7D, 0x80), *range(0xFD, 0x100)}), (0x7C, 0xFC)),
    "float8_e4m3fn": _Float8(4, 7, frozenset({0x7F, 0xFF})),
    "float8_e5m2fnuz": _Float8(5, 16, frozenset({0x80})),
    "float8_e4m3fnuz": _Float8(4, 8, frozenset({0x80})),
}


@cache
def _float8_values(name: str) -> NDArray[np.float32]:
    """The number of each byte; the bytes of float8_e8m0fnu are exponents of two, without sign."""
    import numpy as np

    if name == "float8_e8m0fnu":
        return np.array([*(2.0 ** (byte - 127) for byte in range(255)), math.nan], np.float32)
    return np.array([_FLOAT8[name].value(byte) for byte in range(256)], np.float32)
