"""The bytes of saved tensors, those that are references to weights too: for who copies them or maps them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.wording import printable
from aoti_debug.runs.rundir.formats import tensor_file_format
from aoti_debug.runs.rundir.formats.stored_tensor import AGAIN, file_of, layout_of, reference_at

_CHUNK = 16 << 20  # bytes


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


def chunks(path: Path) -> Iterator[bytes | memoryview]:
    """The content of the tensor file of a saved tensor, also of one that is a reference to a weight.

    Raises:
        RunDirError: the file that is referred to is gone or has changed, or the reference is damaged.
        OSError: the tensor file cannot be read.
    """
    reference = reference_at(path)
    if reference is None:
        with file_of(path).open("rb") as opened:
            while data := opened.read(_CHUNK):
                yield data
        return
    elements = reference.elements()
    yield tensor_file_format.header(reference.name, reference.layout)
    for start in range(0, elements.size, _CHUNK):
        yield elements[start : start + _CHUNK].data
