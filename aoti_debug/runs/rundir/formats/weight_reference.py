"""References to weights: each stands in place of a tensor file whose bytes are those of a weight in another file.

That is the exported program, a compiled package, or the package that was run. They are JSON, `….weight.json`, and
runtime_shims/saving/weights_file.cpp writes them. Where the tensor file lies beside its reference, it is read, and the
other file is not needed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base import dtypes
from aoti_debug.base.errors import ArtifactError, RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data, untrusted_files
from aoti_debug.base.wording import printable
from aoti_debug.package.argument_values import Layout, is_row_major
from aoti_debug.package.weights_file import WeightsFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from aoti_debug.package.pt2.program_weights import StoredWeight

SUFFIX = ".weight.json"
_LARGEST = 1 << 20  # bytes of a reference
FORMAT = 1
_RUN, _PACKAGES = 3, "packages"  # a reference lies in RUN/tensors/CALL/LAUNCH, a package that is kept in RUN/packages
_AGAIN = "run the package again at level 1"


@dataclass(frozen=True)
class WeightReference:
    """A tensor in the file of a program or of a package.

    Attributes:
        name: of the argument.
        file: the file, absolute.
        size, sha256: of the file (WeightsFile), by which it is known again.
        begin: the byte of the file at which element 0 lies.
        strides, storage_offset: in elements, as those of the tensor in the model's memory.
        hash: of its bytes, row-major (TensorFile.hash).
    """

    format: int
    name: str
    file: str
    size: int
    sha256: str
    begin: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage_offset: int
    storage_bytes: int
    hash: tuple[int, int]

    @property
    def is_row_major(self) -> bool:
        """True if the file has the elements in row-major order, without gaps."""
        return is_row_major(self.shape, self.strides)

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self.layout.bytes

    @property
    def layout(self) -> Layout:
        """The layout of the tensor in the model's memory; its device is not known here."""
        return Layout(
            dtype=self.dtype,
            device="",
            shape=self.shape,
            strides=self.strides,
            storage_offset=self.storage_offset,
            storage_bytes=self.storage_bytes,
            item_bytes=_item_bytes(self.dtype),
        )

    @property
    def stored(self) -> StoredWeight:
        """The tensor in the archive."""
        from aoti_debug.package.pt2.program_weights import StoredWeight

        return StoredWeight(self.dtype, self.shape, self.strides, self.begin, self.layout.extent_bytes)

    def elements(self) -> NDArray[np.uint8]:
        """The bytes of the elements, row-major; what the file has in this order is read from the disk when it is used.

        Raises:
            RunDirError: the file is gone, or has changed.
        """
        import numpy as np

        path, item, stored = self.checked_file(), _item_bytes(self.dtype), self.stored
        memory: NDArray[np.uint8] = np.memmap(path, np.uint8, "r", self.begin, (stored.nbytes,)).view(np.ndarray)
        if self.is_row_major:
            return memory
        strides = (*(stride * item for stride in self.strides), 1)
        return np.lib.stride_tricks.as_strided(memory, (*self.shape, item), strides, writeable=False).reshape(-1)

    def checked_file(self) -> Path:
        """The file.

        Raises:
            RunDirError: it is gone, or has changed.
        """
        path = Path(self.file)
        try:
            modified = path.stat().st_mtime_ns if path.is_file() else 0
        except OSError:
            modified = 0
        _check(path, self.size, self.sha256, modified)
        return path


def is_reference(path: Path) -> bool:
    """True for the name of a reference."""
    return path.name.endswith(SUFFIX)


def beside(path: Path) -> Path:
    """The tensor file that may lie beside a reference."""
    return path.with_name(f"{path.name.removesuffix(SUFFIX)}.safetensors")


def instead_of(path: Path) -> Path:
    """The reference in place of a tensor file."""
    return path.with_name(f"{path.name.removesuffix('.safetensors')}{SUFFIX}")


def is_beside(path: Path) -> bool:
    """True if a tensor file, and no link to one, lies beside a reference."""
    return untrusted_files.is_file(path.parent, beside(path).name)


def read(path: Path) -> WeightReference:
    """Reads a reference. If its file is gone and was kept with the run, which was moved, it names the file there.

    Raises:
        RunDirError: it is missing or damaged; the message names it.
    """
    try:
        text = untrusted_files.read_bytes(path.parent, path.name, _LARGEST)
        found = json_data.parse(WeightReference, text)
        _item_bytes(found.dtype)
        is_possible = len(found.shape) == len(found.strides) and min((*found.shape, *found.strides, 0)) == 0
        most = max(found.stored.nbytes, found.nbytes)
        begins = found.begin >= 0 and 0 < most <= found.size - found.begin
        if found.format != FORMAT or not is_possible or not begins:
            raise ValueError("it is no reference to a part of the file that it names")
    except FileNotFoundError as error:
        raise RunDirError(f"{printable(str(path))} is missing", hint=_AGAIN) from error
    except OSError as error:
        raise RunDirError(f"{printable(str(path))} cannot be read: {error.strerror}", hint=_AGAIN) from error
    except ValueError as error:
        raise RunDirError(f"{printable(str(path))} is damaged: {error}", hint=_AGAIN) from error
    return found if Path(found.file).exists() else _in_moved_run(found, path)


def _in_moved_run(reference: WeightReference, path: Path) -> WeightReference:
    """The reference to the copy of its package that its run keeps, or the run of a script around it; else unchanged."""
    file = Path(reference.file)
    runs = list(path.absolute().parents)[_RUN : _RUN + 2] if file.parent.name == _PACKAGES else []
    kept = next((kept for run in runs if (kept := run / _PACKAGES / file.name).is_file()), None)
    return reference if kept is None else replace(reference, file=str(kept))


def _item_bytes(dtype: str) -> int:
    """The size of an element.

    Raises:
        ValueError: the dtype is not known.
    """
    known = dtypes.of_name(dtype)
    if known is None:
        raise ValueError(f"{dtype!r} is no dtype")
    return known.item_bytes


@lru_cache(maxsize=64)
def _check(path: Path, size: int, sha256: str, _modified: int) -> None:
    """Checks that a file is there and is the one that a run refers to.

    Args:
        _modified: when it was changed last: it is looked at once for each time.

    Raises:
        RunDirError: it is not; this is not remembered.
    """
    from aoti_debug.package.pt2 import program_weights  # reads archives; most runs are read without it

    shown = printable(str(path))
    begin, hint = f"the run refers to weights in {shown}, which", f"put it back, or {_AGAIN}"
    if not path.is_file():
        raise RunDirError(f"{begin} does not exist", hint=hint)
    try:
        program_weights.check(WeightsFile(str(path), size, sha256, {}))
    except ArtifactError as error:
        raise RunDirError(f"{begin} has changed since the run, or cannot be read", hint=hint) from error
