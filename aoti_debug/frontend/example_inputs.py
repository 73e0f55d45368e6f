"""What the exported program that a compiled package came from lends it: model lines, and inputs where they fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug.errors import ArtifactError
from aoti_debug.frontend.exported_program import Lowered
from aoti_debug.inputs.signature import Dim, Leaf, Signature


def with_inputs(lowered: Lowered, takes: Signature, fresh: Lowered, gives: Signature, exported: Path) -> Lowered:
    """A package with the example inputs of its program, where it has none of its own and they fit.

    Args:
        takes: of the package.
        fresh, gives: the lowered program and its signature.
        exported: its file, for messages.

    Raises:
        ArtifactError: the program cannot be the one that the package came from.
    """
    if not may_be_compiled_from(takes, gives):
        raise ArtifactError(
            f"{lowered.archive} was not compiled from {exported}, which takes:{gives.described()}",
            hint=f"pass the program that it was compiled from; the package takes:{takes.described()}",
        )
    if lowered.inputs is not None:
        return lowered
    fit = overlap(takes, gives)
    why = fresh.answer.without_inputs if fit else f"those of {exported.name} do not fit"
    answer = replace(lowered.answer, without_inputs=why)
    return replace(lowered, inputs=fresh.inputs if fit else None, answer=answer)


def may_be_compiled_from(takes: Signature, program: Signature) -> bool:
    """Whether a package takes as many values as a program, and tensors of its dtypes and numbers of dimensions."""
    if takes.count != program.count or len(takes.leaves) != len(_tensors(program)):
        return False
    return all(_kind(one) == _kind(other) for one, other in _known(takes, program))


def overlap(takes: Signature, program: Signature) -> bool:
    """Whether every dimension of a program's tensors may have a size that the package's has; of signatures that belong
    together."""
    pairs = _known(takes, program)
    return all(_common(*dims) for one, other in pairs for dims in zip(one.shape, other.shape, strict=True))


def _known(takes: Signature, program: Signature) -> list[tuple[Leaf, Leaf]]:
    """The tensors of both, side by side, of which the package says what they have to be."""
    pairs = zip(takes.leaves, _tensors(program), strict=True)
    return [(one, other) for one, other in pairs if one.is_tensor]


def _tensors(signature: Signature) -> list[Leaf]:
    return [leaf for leaf in signature.leaves if leaf.is_tensor]


def _kind(leaf: Leaf) -> tuple[str, int]:
    return leaf.dtype, len(leaf.shape)


def _common(one: Dim, other: Dim) -> bool:
    least = max(one.minimum, other.minimum)
    return one.admits(least) and other.admits(least)
