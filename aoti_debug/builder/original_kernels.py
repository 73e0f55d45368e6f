"""The kernels that a compiled package brought along: an instrumented package has the same ones, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aoti_debug.errors import InternalError
from aoti_debug.frontend.lowered import Lowered
from aoti_debug.manifest import PackageOrigin
from aoti_debug.pt2 import archive, kernel_hashes


def hashes(lowered: Lowered) -> Mapping[str, str]:
    """SHA-256 of the machine code of each kernel that the package brought along, by name."""
    return {} if lowered.source is PackageOrigin.EXPORTED else kernel_hashes.hash_files(lowered.sources.shipped)


def check(output: Path, originals: Mapping[str, str], model: str) -> None:
    """Reads the package that was written: its kernels are those that the manifest says.

    Raises:
        InternalError: they are not; the package is gone.
    """
    if not originals:
        return
    found = kernel_hashes.compare(originals, kernel_hashes.hash_package(archive.inspect(output), model))
    if found.different:
        output.unlink()
        raise InternalError(f"{output}: {found}; not {', '.join(found.different)}", hint="report this as a bug")
