"""Chooses the inputs to embed in a compiled package: its own, or the example inputs of its exported program."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.errors import ArtifactError
from aoti_debug.instrument.frontend.lowered_model import EmbeddedInputs, LoweredModel
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature


def choose_inputs(package: LoweredModel, program: LoweredModel, exported: Path) -> EmbeddedInputs:
    """Returns the inputs given for a compiled package, or else the example inputs of its program if they fit.

    Args:
        program: the exported program that the package was compiled from.
        exported: file of the program, for messages.

    Raises:
        ArtifactError: the program cannot be the one that the package came from.
    """
    package_signature, program_signature = package.signature, program.signature
    if not may_be_compiled_from(package_signature, program_signature):
        raise ArtifactError(
            f"{package.archive.path} was not compiled from {exported}, "
            f"which takes:{program_signature.indented_lines()}",
            hint=f"pass the program that it was compiled from; the package takes:{package_signature.indented_lines()}",
        )
    if package.inputs.file is not None:
        return package.inputs
    if sizes_overlap(package_signature, program_signature):
        return program.inputs
    return EmbeddedInputs(None, f"those of {exported.name} do not fit")


def may_be_compiled_from(package: ModelSignature, program: ModelSignature) -> bool:
    """True if both signatures have the same number of inputs, and tensors of equal dtypes and ranks."""
    if package.count != program.count or len(package.leaves) != len(_tensors(program)):
        return False
    return all(
        _dtype_and_rank(ours) == _dtype_and_rank(theirs) for ours, theirs in _described_tensors(package, program)
    )


def sizes_overlap(package: ModelSignature, program: ModelSignature) -> bool:
    """True if the ranges of sizes overlap in every dimension of every tensor; both signatures must match."""
    pairs = _described_tensors(package, program)
    return all(_dims_overlap(*dims) for ours, theirs in pairs for dims in zip(ours.shape, theirs.shape, strict=True))


def _described_tensors(package: ModelSignature, program: ModelSignature) -> list[tuple[Leaf, Leaf]]:
    """Pairs of tensors of both, without those that the package does not describe."""
    pairs = zip(package.leaves, _tensors(program), strict=True)
    return [(ours, theirs) for ours, theirs in pairs if ours.is_tensor]


def _tensors(signature: ModelSignature) -> list[Leaf]:
    return [leaf for leaf in signature.leaves if leaf.is_tensor]


def _dtype_and_rank(leaf: Leaf) -> tuple[str, int]:
    return leaf.dtype, len(leaf.shape)


def _dims_overlap(first: Dim, second: Dim) -> bool:
    smallest = max(first.minimum, second.minimum)
    return first.admits(smallest) and second.admits(smallest)
