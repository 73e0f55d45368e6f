"""The change that Inductor's decompositions and passes have made to an exported program with wrong outputs."""

from __future__ import annotations

import math

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.protocol.measurement import EXPLAINED, LEAST, AlteredOutput, AlteredProgram
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.recording.values import unravel
from aoti_debug.package.reference.node_text import node_text
from aoti_debug.package.reference.program import Reference


@dataclass(frozen=True)
class LostOperator:
    """An operator of the exported program whose value the graph that kernels were generated from lacks.

    Attributes:
        text: the node: "tanh = aten.tanh.default(linear)".
        line: of the model; None if it is unknown.
    """

    node: str
    operator: str
    text: str
    line: ModelLine | None


@dataclass(frozen=True)
class Alteration:
    """The difference of a program before and after Inductor's decompositions and passes.

    Attributes:
        relative: the largest relative difference of an output, both computed in float64; -1 if it is not known.
        explained: the largest part of an output's error that this difference makes up.
        least: the relative difference from which on rounding does not explain it.
        is_rounded: True if an operator has no float64.
        lost: the operators whose values are lost first, on the way to the wrong outputs.
    """

    relative: float
    explained: float = 1.0
    least: float = LEAST
    is_rounded: bool = False
    lost: tuple[LostOperator, ...] = ()

    @property
    def is_proved(self) -> bool:
        """True if the program computes something else afterwards, which no rounding explains and the error shows."""
        return is_proof(self)


def is_proof(found: Alteration | AlteredOutput) -> bool:
    """True if the difference of two graphs in float64 is no rounding, and the error of the run is this difference."""
    return found.relative > found.least and found.explained >= EXPLAINED


def changed_text(output: AlteredOutput) -> str:
    """ "has 3 wrong elements among 4096: [0, 5] is 1.5, should be 1.25": a fault of an output."""
    count = math.prod(output.shape)
    text = f"has {wording.pluralize(output.elements, 'wrong element')} among {count}"
    if output.worst is None:
        return text
    place = ", ".join(map(str, unravel(output.worst.index, output.shape)))
    return f"{text}: [{place}] is {output.worst.actual}, should be {output.worst.expected}"


def alteration_of(altered: AlteredProgram, reference: Reference) -> Alteration:
    """The alteration that the evaluating process found, with the operators and model lines of its nodes."""
    exported = reference.of_exported
    nodes = {} if exported is None else exported.graphs[0].by_name
    found = (nodes[name] for name in altered.lost if name in nodes)
    lost = (LostOperator(node.name, node.target, node_text(node), reference.line(node)) for node in found)
    return Alteration(altered.relative, altered.explained, altered.least, altered.is_rounded, tuple(lost))
