"""Verifies that an instrumented package has the kernels of the compiled package, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aoti_debug.base.errors import InternalError
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.package.manifest import PackageOrigin
from aoti_debug.package.pt2 import archive, kernel_hashes


def original_hashes(lowered: LoweredModel) -> Mapping[str, str]:
    """SHA-256 of the machine code of each kernel of a compiled package, by name; empty for an exported program."""
    return {} if lowered.source is PackageOrigin.EXPORTED else kernel_hashes.hash_files(lowered.sources.shipped)


def verify(output: Path, originals: Mapping[str, str], model: str) -> None:
    """Compares the kernels of the package that was written with the original ones.

    Raises:
        InternalError: they differ; the package has been deleted.
    """
    if not originals:
        return
    comparison = kernel_hashes.compare(originals, kernel_hashes.hash_package(archive.inspect(output), model))
    if comparison.different:
        output.unlink()
        raise InternalError(
            f"{output}: {comparison}; not {', '.join(comparison.different)}", hint="report this as a bug"
        )
