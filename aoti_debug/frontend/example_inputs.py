"""The example inputs that a compiled package gets from the exported program that it came from, where they fit."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.errors import ArtifactError
from aoti_debug.frontend.lowered import EmbeddedInputs, Lowered
from aoti_debug.inputs.signature import Dim, Leaf, ModelSignature


def lent(package: Lowered, program: Lowered, exported: Path) -> EmbeddedInputs:
    """The inputs of a compiled package: its own; where it has none, the example inputs of its program if they fit.

    Args:
        program: the one that the package came from.
        exported: the program's file, for messages.

    Raises:
        ArtifactError: the program cannot be the one that the package came from.
    """
    takes, gives = package.signature, program.signature
    if not may_be_compiled_from(takes, gives):
        raise ArtifactError(
            f"{package.archive.path} was not compiled from {exported}, which takes:{gives.indented_lines()}",
            hint=f"pass the program that it was compiled from; the package takes:{takes.indented_lines()}",
        )
    if package.inputs.file is not None:
        return package.inputs
    if overlap(takes, gives):
        return program.inputs
    return EmbeddedInputs(None, f"those of {exported.name} do not fit")


def may_be_compiled_from(takes: ModelSignature, program: ModelSignature) -> bool:
    """Whether a package takes as many values as a program, and tensors of its dtypes and numbers of dimensions."""
    if takes.count != program.count or len(takes.leaves) != len(_tensors(program)):
        return False
    return all(_kind(one) == _kind(other) for one, other in _known(takes, program))


def overlap(takes: ModelSignature, program: ModelSignature) -> bool:
    """Whether every dimension of a program's tensors may have a size that the package's has; of signatures that belong
    together."""
    pairs = _known(takes, program)
    return all(_common(*dims) for one, other in pairs for dims in zip(one.shape, other.shape, strict=True))


def _known(takes: ModelSignature, program: ModelSignature) -> list[tuple[Leaf, Leaf]]:
    """The tensors of both, side by side, of which the package says what they have to be."""
    pairs = zip(takes.leaves, _tensors(program), strict=True)
    return [(one, other) for one, other in pairs if one.is_tensor]


def _tensors(signature: ModelSignature) -> list[Leaf]:
    return [leaf for leaf in signature.leaves if leaf.is_tensor]


def _kind(leaf: Leaf) -> tuple[str, int]:
    return leaf.dtype, len(leaf.shape)


def _common(one: Dim, other: Dim) -> bool:
    least = max(one.minimum, other.minimum)
    return one.admits(least) and other.admits(least)
