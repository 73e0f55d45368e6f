"""Loads an exported program whose weights are read from its archive when they are used. Runs in a child process.

`torch.export.load` copies all of them into memory. Here the archive is mapped: the system reads what is used, and drops
it when memory is scarce. What the program overwrites is copied page by page; the archive does not change.
"""

from __future__ import annotations

import contextlib
import inspect
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_READ = "_build_file_map"  # the function of torch that reads the weights of an archive
_PARAMETERS = 3  # of this function: the archive's reader, the weights' descriptions, their folder
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a member in a zip file, before its name; its end holds two lengths
_ALIGNMENT = 64  # of a weight, as of torch's allocator


def load(path: Path) -> torch.export.ExportedProgram:
    """The exported program of an archive.

    Raises:
        Exception: loading it runs code of torch, and of the program's operators.
    """
    import torch

    with _mapping(path):
        return torch.export.load(str(path))


@contextlib.contextmanager
def _mapping(path: Path) -> Iterator[None]:
    """Inside the `with`, torch maps the weights of an archive; one that it stores in another way it reads itself."""
    from torch.export.pt2_archive import _package

    read = getattr(_package, _READ, None)
    if read is None or len(inspect.signature(read).parameters) != _PARAMETERS or not zipfile.is_zipfile(path):
        yield
        return
    weights = _MappedWeights(path, read)
    setattr(_package, _READ, weights.tensors)
    try:
        yield
    finally:
        setattr(_package, _READ, read)


class _MappedWeights:
    def __init__(self, path: Path, read: Callable[[Any, Any, str], dict[str, torch.Tensor]]) -> None:
        import torch

        self._read = read
        self._places = _places(path)
        self._archive = torch.UntypedStorage.from_file(str(path), False, path.stat().st_size)

    def tensors(self, reader: Any, config: Any, folder: str) -> dict[str, torch.Tensor]:
        """The flat tensors of an archive by file name, like torch's own function."""
        import torch
        from torch._export.serde.serialize import deserialize_device, deserialize_scalar_type

        mapped: dict[str, torch.Tensor] = {}
        others = {}
        for name, payload in config.config.items():
            place = self._places.get(f"{folder}{payload.path_name}")
            meta = payload.tensor_meta
            if payload.use_pickle or place is None or deserialize_device(meta.device) != torch.device("cpu"):
                others[name] = payload
            elif payload.path_name not in mapped:
                dtype = deserialize_scalar_type(meta.dtype)
                own: Any = self._archive[place]  # a storage of its own: torch places tensors in it by their offsets
                tensor = torch.empty(0, dtype=dtype)
                tensor.set_(own, 0, (own.nbytes() // dtype.itemsize,), (1,))
                mapped[payload.path_name] = tensor.requires_grad_(bool(meta.requires_grad))
        return {**self._read(reader, replace(config, config=others), folder), **mapped}


def _places(path: Path) -> Mapping[str, slice]:
    """Where the members of an archive lie that can be mapped, by their names without its first folder."""
    places: dict[str, slice] = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for member in archive.infolist():
            file.seek(member.header_offset)
            begin = file.tell() + _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size)))
            is_stored = member.compress_type == zipfile.ZIP_STORED and member.file_size > 0
            if is_stored and begin % _ALIGNMENT == 0:
                places[member.filename.partition("/")[2]] = slice(begin, begin + member.file_size)
    return places
