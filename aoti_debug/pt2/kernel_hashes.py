"""Whether the kernels of a package are those of the package that it was made from: by the bytes of their code."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from aoti_debug.errors import ArtifactError
from aoti_debug.manifest import KernelMatch
from aoti_debug.native.elf import Library
from aoti_debug.pt2.archive import AOTINDUCTOR, KERNEL_BINARIES, Artifact
from aoti_debug.pt2.archive_safety import DAMAGED

ORIGINAL = ".original"  # of the library that an instrumented one takes its kernels from
_LIBRARIES = (".so", ORIGINAL)
_KERNELS = ("cpp_", "cuda_")


def compare(original: Mapping[str, str], other: Mapping[str, str]) -> KernelMatch:
    """Compares the hashes of two packages' kernels by name."""
    different = (name for name, digest in original.items() if other.get(name) != digest)
    return KernelMatch(len(original), tuple(sorted(different)))


def of_package(package: Artifact, model: str) -> Mapping[str, str]:
    """SHA-256 of the machine code of each C++ kernel of a model and of each kernel binary, by function and file name.

    Raises:
        ArtifactError: a library or a kernel binary cannot be read.
    """
    prefix = f"{AOTINDUCTOR}{model}/"
    found: dict[str, str] = {}
    for member in package.members:
        if member.startswith(prefix) and member.endswith(KERNEL_BINARIES):
            found[member.removeprefix(prefix)] = _sha256(package.read(member))
        elif member.startswith(prefix) and member.endswith(_LIBRARIES):
            found |= _of_member(package, member)
    return found


def of_files(files: Iterable[Path]) -> Mapping[str, str]:
    """As `of_package`, of files that lie on the disk.

    Raises:
        ArtifactError: a library cannot be read.
    """
    found: dict[str, str] = {}
    for path in files:
        if path.name.endswith(KERNEL_BINARIES):
            found[path.name] = _sha256(path.read_bytes())
        elif path.name.endswith(_LIBRARIES):
            found |= of_library(path)
    return found


def of_library(path: Path) -> Mapping[str, str]:
    """SHA-256 of the machine code of each C++ kernel that a library exports.

    Raises:
        ArtifactError: it is no ELF library.
    """
    try:
        with Library(path) as library:
            return dict(_of_code(library))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path.name} is no library: {error}", hint="copy or compile the package again") from error


def of_binary(path: Path) -> str:
    """SHA-256 of a kernel binary without its debugging information, which holds the path that its source had; of the
    whole file where it is no ELF file of 64 bits, or has no sections."""
    try:
        with Library(path) as binary:
            code = b"".join(binary.without_debugging())
    except ValueError:
        code = b""
    return _sha256(code or path.read_bytes())


def _of_code(library: Library) -> Iterator[tuple[str, str]]:
    for prefix in _KERNELS:
        for name, code in library.code(prefix).items():
            yield name, _sha256(code)


def _of_member(package: Artifact, member: str) -> Mapping[str, str]:
    try:
        with (
            zipfile.ZipFile(package.path) as archive,
            archive.open(f"{package.root}/{member}") as data,
            tempfile.NamedTemporaryFile(prefix="aoti-debug-") as file,
        ):
            shutil.copyfileobj(data, file, 1 << 20)
            file.flush()
            return of_library(Path(file.name))
    except (*DAMAGED, OSError) as error:
        raise ArtifactError(f"{member} in {package.path} is damaged: {error}", hint="copy or build it again") from error


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
