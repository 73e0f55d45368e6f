"""Reads where weights, buffers and constants lie in an archive, without importing torch.

`torch.export.save` stores each as a member of raw bytes, uncompressed and aligned, and describes them in two JSON
members, `data/weights/model_weights_config.json` and `data/constants/model_constants_config.json`. A compiled package
holds them one after the other: in the library, behind it, or in a file beside it; or each as a file of torch.save.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from aoti_debug.base import dtypes
from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.native import elf
from aoti_debug.package.argument_values import extent_elements
from aoti_debug.package.manifest import Manifest
from aoti_debug.package.pt2.archive import AOTINDUCTOR, DAMAGED, WEIGHTS_CONFIG, Artifact, member_begin
from aoti_debug.package.pt2.kernel_hashes import ORIGINAL
from aoti_debug.package.weights_file import PackedWeights, WeightsFile

if TYPE_CHECKING:
    import torch

_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_LARGEST_CONFIG = 256 << 20  # bytes
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of a configuration
_MAX_ELEMENTS = 1 << 48
_MISSING_HINT = "put it back, or build the package again"
_ALIGNMENT = 64  # of a weight, as of torch's allocator
_BLOB, _LIBRARIES = "_weights.blob", (".so", ORIGINAL)
_SYMBOL = "_binary_constants_bin_start"  # in a library, where its weights begin
_MAGIC = 8  # bytes behind weights that follow a library
_SAVED, _FIRST_STORAGE = "data/weights/", "data/0"
_STRIDED = 7  # torch._export.serde.schema.Layout
# torch._export.serde.schema.ScalarType
_DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu",
    34: "uint32",
    35: "uint64",
}


@dataclass(frozen=True)
class StoredWeight:
    """A tensor in an archive.

    Attributes:
        strides: in elements.
        begin: the byte of the archive at which element 0 lies.
        nbytes: from there to the end of its last element.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    begin: int
    nbytes: int


def stored_weights(path: Path) -> Mapping[str, StoredWeight]:
    """The tensors of an exported program that can be mapped, by the attribute of the model: "linear.weight".

    Others are left out: pickled ones, of no elements, or of a form that is not known here.

    Raises:
        OSError, zipfile.BadZipFile: the archive cannot be read.
    """
    found: dict[str, StoredWeight] = {}
    with _opened(path) as archive:
        members = {member.filename.partition("/")[2]: member for member in archive.infolist()}
        places = _places(path, members)
        for config in _CONFIGS:
            folder = config.rpartition("/")[0]
            if config not in members:
                continue
            for name, payload in _entries(archive, members[config]):
                place = places.get(f"{folder}/{payload.get('path_name')}")
                with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
                    if place is not None and not payload["use_pickle"]:
                        found[name] = _stored(payload["tensor_meta"], *place)
    return found


def packed_weights(package: Artifact, manifest: Manifest) -> Mapping[str, StoredWeight]:
    """The memory of the large weights that a compiled package holds, by the name of the constant.

    Weights that it does not hold, or in a form that is not known here, are left out.

    Args:
        package: that of the manifest, or the compiled package that it was built from.

    Raises:
        OSError, zipfile.BadZipFile: the archive cannot be read.
    """
    if manifest.packed is None:
        return {}
    folder = f"{AOTINDUCTOR}{manifest.model}/"
    constants = {constant.name: constant for constant in manifest.constants}
    with _opened(package.path) as archive, package.path.open("rb") as file:
        members = {member.filename.partition("/")[2]: member for member in archive.infolist()}
        if f"{folder}{WEIGHTS_CONFIG}" in members:
            places = _saved_places(archive, file, members, folder)
            named = {name: places[c.fqn] for name, c in constants.items() if c.fqn in places}
        else:
            named = _places_in_one(file, members, folder, manifest.packed)
    return {
        name: StoredWeight(constants[name].dtype, constants[name].shape, constants[name].strides, *place)
        for name in manifest.packed.begins
        if name in constants and (place := named.get(name)) is not None
    }


def _places_in_one(
    file: IO[bytes], members: Mapping[str, zipfile.ZipInfo], folder: str, packed: PackedWeights
) -> dict[str, tuple[int, int]]:
    """The first byte and the size of each weight that lies with the others; those of the first place that has room."""
    stored = [m for name, m in members.items() if name.startswith(folder) and m.compress_type == zipfile.ZIP_STORED]
    blobs = [member for member in stored if member.filename.endswith(_BLOB)]
    libraries = [member for member in stored if member.filename.endswith(_LIBRARIES)]
    searches = ((_in_blob, blobs), (_behind_library, libraries), (_in_library, libraries))
    found = (search(file, member, packed.size) for search, searched in searches for member in searched)
    begin = next((begin for begin in found if begin is not None), None)
    if begin is None:
        return {}
    return {name: (begin + place, packed.sizes[name]) for name, place in packed.begins.items() if name in packed.sizes}


def _in_blob(file: IO[bytes], member: zipfile.ZipInfo, size: int) -> int | None:
    return member_begin(file, member) if member.file_size >= size else None


def _behind_library(file: IO[bytes], member: zipfile.ZipInfo, size: int) -> int | None:
    """The byte of an archive at which so many bytes of weights begin that end the file of a library."""
    begin = member_begin(file, member)
    with contextlib.suppress(ValueError):  # no library
        if begin is not None and member.file_size - elf.length(file, begin) >= size + _MAGIC:
            return begin + member.file_size - size - _MAGIC
    return None


def _in_library(file: IO[bytes], member: zipfile.ZipInfo, size: int) -> int | None:
    begin = member_begin(file, member)
    with contextlib.suppress(ValueError):  # no library
        place = None if begin is None else elf.place_of(file, _SYMBOL, begin)
        if begin is not None and place is not None and place + size <= begin + member.file_size:
            return place
    return None


def _saved_places(
    archive: zipfile.ZipFile, file: IO[bytes], members: Mapping[str, zipfile.ZipInfo], folder: str
) -> Mapping[str, tuple[int, int]]:
    """The first byte and the size of the memory of each weight that is a file of torch.save, by its attribute."""
    found: dict[str, tuple[int, int]] = {}
    try:
        config = json.loads(archive.read(members[f"{folder}{WEIGHTS_CONFIG}"]))
        names = {str(attribute): str(name) for attribute, (name, *_) in config.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, *DAMAGED):
        return found
    for attribute, name in names.items():
        member = members.get(f"{_SAVED}{name}")
        begin = None if member is None else member_begin(file, member)
        if member is None or begin is None or member.compress_type != zipfile.ZIP_STORED:
            continue
        part = _Part(file, begin, begin + member.file_size)
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(part) as saved:
            for inner in saved.infolist():
                if inner.filename.partition("/")[2] == _FIRST_STORAGE and inner.compress_type == zipfile.ZIP_STORED:
                    place = member_begin(cast("IO[bytes]", part), inner)
                    if place is not None:
                        found[attribute] = begin + place, inner.file_size
    return found


class _Part(io.RawIOBase):
    """A part of an open file, as a file."""

    def __init__(self, file: IO[bytes], begin: int, end: int) -> None:
        super().__init__()
        self._file, self._begin, self._size, self._at = file, begin, end - begin, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max({io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset, 0)
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._at, 0)
        self._file.seek(self._begin + self._at)
        data = self._file.read(left if size < 0 else min(size, left))
        self._at += len(data)
        return data


def bytes_of_weights(path: Path) -> int:
    """The bytes of the weights of an exported program that can be mapped; those that share memory count once.

    Raises:
        ArtifactError: the archive cannot be read.
    """
    try:
        stored = stored_weights(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{path} cannot be read: {error}", hint="copy or export it again") from error
    return sum({weight.begin: weight.nbytes for weight in stored.values()}.values())


def mapped(path: Path, weight: StoredWeight) -> torch.Tensor:
    """A tensor on the bytes of an archive, which does not change: what is overwritten is copied page by page."""
    import numpy as np
    import torch

    memory: Any = np.memmap(path, np.uint8, "c", weight.begin, (weight.nbytes,))
    return torch.from_numpy(memory).view(getattr(torch, weight.dtype)).as_strided(weight.shape, weight.strides)


def describe(path: Path, names: Mapping[str, str]) -> WeightsFile:
    """The file of an exported program, as a package refers to it.

    Args:
        names: the attribute of the program, by the name of the constant in the package.

    Raises:
        OSError, zipfile.BadZipFile: it cannot be read.
    """
    path = path.resolve()
    return WeightsFile(str(path), path.stat().st_size, _directory_sha256(path), dict(names))


def check(weights: WeightsFile) -> None:
    """Checks that the file of the weights is there, and has not changed.

    Raises:
        ArtifactError: it is not, has changed, or cannot be read.
    """
    begin = f"the package takes its weights from {weights.path}, which"
    try:
        found = describe(Path(weights.path), weights.names)
    except FileNotFoundError as error:
        raise ArtifactError(f"{begin} does not exist", hint=_MISSING_HINT) from error
    except (OSError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{begin} cannot be read: {error}", hint=_MISSING_HINT) from error
    if (found.size, found.sha256) != (weights.size, weights.sha256):
        raise ArtifactError(f"{begin} has changed since the package was built", hint=_MISSING_HINT)


def _directory_sha256(path: Path) -> str:
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        file.seek(archive.start_dir)
        return hashlib.sha256(file.read()).hexdigest()


def _opened(path: Path) -> zipfile.ZipFile:
    """The archive, whatever is wrong with its directory.

    Raises:
        OSError, zipfile.BadZipFile: it cannot be read.
    """
    try:
        return zipfile.ZipFile(path)
    except (NotImplementedError, ValueError) as error:  # a later version of the format, a name that is no text
        raise zipfile.BadZipFile(str(error)) from error


def _entries(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The entries of a configuration; none if it cannot be read."""
    if member.file_size > _LARGEST_CONFIG or member.compress_type not in _COMPRESSIONS:
        return
    try:
        config = json.loads(archive.read(member))["config"]
    except (ValueError, KeyError, TypeError, RuntimeError, *DAMAGED):  # RuntimeError: it is encrypted, or nested deeply
        return
    if not isinstance(config, dict):
        return
    yield from ((name, payload) for name, payload in config.items() if isinstance(payload, dict))


def _stored(meta: Mapping[str, Any], begin: int, nbytes: int) -> StoredWeight:
    """The tensor of a description.

    Raises:
        KeyError, TypeError, ValueError, OverflowError: it is of another form, or larger than its member.
    """
    dtype = _DTYPES[meta["dtype"]]
    shape, strides = (tuple(int(item["as_int"]) for item in meta[name]) for name in ("sizes", "strides"))
    info = dtypes.of_name(dtype)
    if meta["layout"] != _STRIDED or info is None or len(shape) != len(strides) or min(shape, default=1) < 1:
        raise ValueError(meta)
    offset = int(meta["storage_offset"]["as_int"]) * info.item_bytes
    if offset < 0 or min(strides, default=0) < 0:
        raise ValueError(meta)
    extent = extent_elements(shape, strides) * info.item_bytes
    if offset + extent > nbytes or math.prod(shape) > _MAX_ELEMENTS or max(strides, default=0) > _MAX_ELEMENTS:
        raise ValueError(meta)
    return StoredWeight(dtype, shape, strides, begin + offset, extent)


def _places(path: Path, members: Mapping[str, zipfile.ZipInfo]) -> Mapping[str, tuple[int, int]]:
    """The first byte and the size of each member that can be mapped, by its name below the archive's root."""
    places: dict[str, tuple[int, int]] = {}
    size = path.stat().st_size
    with path.open("rb") as file:
        for name, member in members.items():
            if member.compress_type != zipfile.ZIP_STORED or member.file_size == 0:
                continue
            if not 0 <= member.header_offset < size:
                continue
            begin = member_begin(file, member)
            if begin is not None and begin % _ALIGNMENT == 0 and begin + member.file_size <= size:
                places[name] = begin, member.file_size
    return places
