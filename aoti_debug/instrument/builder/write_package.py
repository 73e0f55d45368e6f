"""Writes a package: the lowered model with its sources replaced by the compiled library."""

from __future__ import annotations

import contextlib
import mmap
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeAlias

from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.package import manifest, program_graphs, weights_file
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import DAMAGED
from aoti_debug.package.pt2.extract import FilePart, copy_part

ROOT = "package"
CHUNK = 1 << 20  # bytes
_ALIGNMENT = 64  # bytes
_PADDING = 0x4246  # the extra field of a member that torch pads with, "FB"
DATE = (1980, 1, 1, 0, 0, 0)  # equal packages are equal files


@dataclass(frozen=True)
class LibraryWithWeights:
    """A library, and the weights that follow it in its file, page aligned, where the model expects them."""

    library: Path
    weights: FilePart

    @property
    def padding(self) -> bytes:
        """The bytes between the library and the weights."""
        page = max(16384, mmap.PAGESIZE)
        return b" " * (page - self.library.stat().st_size % page)

    @property
    def size(self) -> int:
        """The size of the file, in bytes."""
        return self.library.stat().st_size + len(self.padding) + self.weights.size


Content: TypeAlias = "Path | bytes | LibraryWithWeights"
Member: TypeAlias = tuple[str, Content]
Check: TypeAlias = Callable[[Path], None]
_OTHER_NAME = "name another file with -o"


def write_instrumented(
    output: Path,
    lowered: LoweredModel,
    library: Path,
    manifest_json: str,
    inputs: Path | None,
    check: Check | None = None,
) -> None:
    """Writes the instrumented package; it appears under its name only when it is complete, and passes a check.

    Args:
        inputs: a file of inputs to embed; None for none.
        check: called with the complete file, under another name; no package appears if it raises an exception.

    Raises:
        UsageError: the file cannot be written, or what was written cannot be read back.
    """
    extra: list[Member] = [
        (manifest.MEMBER, manifest_json.encode()),
        (archive.SIGNATURE_MEMBER, lowered.signature_file),
    ]
    if lowered.reference_file is not None:
        extra.append((program_graphs.MEMBER, lowered.reference_file))
    if lowered.exported_file is not None:
        extra.append((program_graphs.EXPORTED_MEMBER, lowered.exported_file))
    if inputs is not None:
        extra.append((archive.INPUTS_MEMBER, inputs))
    if lowered.weights is not None:
        extra.append((weights_file.MEMBER, lowered.weights))
    _write(output, lowered, library, extra, check)


def write_plain(output: Path, lowered: LoweredModel, library: Path) -> None:
    """Writes the uninstrumented package, as torch itself would have written it.

    Raises:
        UsageError: the file cannot be written.
    """
    _write(output, lowered, library, [])


def check_writable(output: Path) -> None:
    """Checks, before a build, that the package can be written.

    Raises:
        UsageError: its directory does not exist, cannot be written to, or the name is a directory.
    """
    if output.suffix != ".pt2":
        raise UsageError(f"{output} has to end in .pt2: torch loads packages by that ending")
    if output.is_dir():
        raise UsageError(f"{output} is a directory", hint="name the package's file with -o")
    with _temporary_package(output):
        pass


def _write(output: Path, lowered: LoweredModel, library: Path, extra: list[Member], check: Check | None = None) -> None:
    folder = f"{archive.AOTINDUCTOR}{lowered.model}/"
    members: list[Member] = [
        *((f"{folder}{path.name}", path) for path in lowered.sources.shipped),
        (f"{folder}{lowered.sources.stem}.so", _with_mapped_weights(library, lowered.sources.mapped_weights)),
        # torch 2.11 finds the metadata by the name of the C++ file
        (f"{folder}{lowered.sources.stem}.cpp", lowered.sources.wrapper.encode()),
        *extra,
    ]
    original = lowered.archive
    with _temporary_package(output) as temporary:
        try:
            with (
                zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as package,
                zipfile.ZipFile(original.path) as source,
            ):
                for name, content in members:
                    _add(package, f"{ROOT}/{name}", content)
                for info in source.infolist():
                    name = info.filename.removeprefix(f"{original.root}/")
                    if not name.startswith(folder):
                        with source.open(info) as data:
                            _copy(package, f"{ROOT}/{name}", data, info.file_size)
        except DAMAGED as error:
            raise ArtifactError(f"{original.path} is damaged: {error}", hint="copy or compile it again") from error
        except OSError as error:
            raise UsageError(f"{output} cannot be written: {error.strerror}", hint=_OTHER_NAME) from error
        if check is not None:
            try:
                check(temporary)
            except ArtifactError as error:
                reason = str(error).replace(str(temporary), "what was written")
                raise UsageError(f"{output} cannot be written: {reason}", hint=_OTHER_NAME) from error
        temporary.replace(output)


def _with_mapped_weights(library: Path, weights: FilePart | None) -> Path | LibraryWithWeights:
    return library if weights is None else LibraryWithWeights(library, weights)


def _add(package: zipfile.ZipFile, name: str, content: Content) -> None:
    if isinstance(content, bytes):
        with _member(package, name, len(content)) as out:
            out.write(content)
        return
    if isinstance(content, LibraryWithWeights):
        with _member(package, name, content.size) as out, content.library.open("rb") as data:
            shutil.copyfileobj(data, out, CHUNK)
            out.write(content.padding)
            copy_part(content.weights, out)
        return
    with content.open("rb") as data:
        _copy(package, name, data, content.stat().st_size)


def _copy(package: zipfile.ZipFile, name: str, data: IO[bytes], size: int) -> None:
    with _member(package, name, size) as out:
        shutil.copyfileobj(data, out, CHUNK)


def _member(package: zipfile.ZipFile, name: str, size: int) -> IO[bytes]:
    """A new member of the package, to be written; its content is aligned, as torch does it: weights are mapped."""
    info = zipfile.ZipInfo(name, DATE)
    info.external_attr = 0o644 << 16
    info.file_size, info.CRC = size, 0
    is_large = size * 1.05 > zipfile.ZIP64_LIMIT
    position = package.start_dir + len(info.FileHeader(zip64=is_large)) + len(_padding(0))
    info.extra = _padding(-position % _ALIGNMENT)
    return package.open(info, "w", force_zip64=is_large)


def _padding(size: int) -> bytes:
    """An extra field of a member, of its head and so many bytes."""
    return struct.pack("<HH", _PADDING, size) + bytes(size)


@contextlib.contextmanager
def _temporary_package(output: Path) -> Iterator[Path]:
    """An empty temporary file beside `output`, deleted at the end if it was not renamed.

    Raises:
        UsageError: it cannot be made.
    """
    with contextlib.ExitStack() as stack:
        try:
            temporary = stack.enter_context(atomic_write.temporary_beside(output))
        except OSError as error:
            raise UsageError(
                f"{output.parent} cannot be written to: {error.strerror}",
                hint="name a file in another directory with -o",
            ) from error
        yield temporary
