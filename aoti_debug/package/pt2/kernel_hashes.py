"""Compares the machine code of a package's kernels with that of the package that it was built from, by SHA-256."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.native.elf import Library
from aoti_debug.package.pt2 import extract
from aoti_debug.package.pt2.archive import AOTINDUCTOR, DAMAGED, KERNEL_BINARIES, Artifact, unreadable
from aoti_debug.package.weights_file import KernelMatch

ORIGINAL = ".original"  # suffix of the library that an instrumented package takes its kernels from
_LIBRARIES = (".so", ORIGINAL)
_KERNEL_PREFIXES = ("cpp_", "cuda_")


def compare(original: Mapping[str, str], other: Mapping[str, str]) -> KernelMatch:
    """Compares the hashes of two packages' kernels by name."""
    different = (name for name, digest in original.items() if other.get(name) != digest)
    return KernelMatch(len(original), tuple(sorted(different)))


def hash_package(package: Artifact, model: str) -> Mapping[str, str]:
    """Hashes the machine code of each C++ kernel of a model and each kernel binary, by function and file name.

    Raises:
        ArtifactError: a library or a kernel binary cannot be read.
    """
    prefix = f"{AOTINDUCTOR}{model}/"
    hashes: dict[str, str] = {}
    for member in package.members:
        if member.startswith(prefix) and member.endswith(KERNEL_BINARIES):
            hashes[member.removeprefix(prefix)] = _sha256(package.read(member))
        elif member.startswith(prefix) and member.endswith(_LIBRARIES):
            hashes |= _hash_member(package, member)
    return hashes


def hash_files(files: Iterable[Path]) -> Mapping[str, str]:
    """Hashes the kernels of files on the disk like `hash_package` those of a package.

    Raises:
        ArtifactError: a library cannot be read.
    """
    hashes: dict[str, str] = {}
    for path in files:
        if path.name.endswith(KERNEL_BINARIES):
            hashes[path.name] = _sha256(path.read_bytes())
        elif path.name.endswith(_LIBRARIES):
            hashes |= hash_library(path)
    return hashes


def hash_library(path: Path) -> Mapping[str, str]:
    """Hashes the machine code of each C++ kernel that a library exports, by function name.

    Raises:
        ArtifactError: the file is not an ELF library.
    """
    try:
        with Library(path) as library:
            return dict(_hash_code(library))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path.name} is no library: {error}", hint="copy or compile the package again") from error


def hash_binary(path: Path) -> tuple[str, str]:
    """Hashes a kernel binary whole, and without its debug information, which holds the path of its source.

    The two are equal for a file that is not 64-bit ELF, or has no sections.
    """
    data = path.read_bytes()
    try:
        with Library.in_memory(data) as binary:
            code = b"".join(binary.content_without_debug_info())
    except ValueError:
        code = b""
    return _sha256(data), _sha256(code or data)


def _hash_code(library: Library) -> Iterator[tuple[str, str]]:
    for prefix in _KERNEL_PREFIXES:
        for name, code in library.machine_code(prefix).items():
            yield name, _sha256(code)


def _hash_member(package: Artifact, member: str) -> Mapping[str, str]:
    try:
        with (
            zipfile.ZipFile(package.path) as archive,
            tempfile.NamedTemporaryFile(prefix="aoti-debug-") as file,
        ):
            extract.copy_member(archive, archive.getinfo(f"{package.root}/{member}"), file)
            file.flush()
            return hash_library(Path(file.name))
    except (*DAMAGED, OSError) as error:
        raise unreadable(f"{member} in {package.path}", error) from error


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
