"""The parts of a model that its launches belong to: modules at a chosen depth, or each launch by itself."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Provenance
from aoti_debug.runs.rundir.timeline import Launch

WHOLE = "(model)"  # the part of launches of which no module is known


class PartedBy(str, Enum):
    """The way in which a model is taken apart."""

    MODULE = "module"
    LAUNCH = "launch"


@dataclass(frozen=True)
class ModelPart:
    """A part of a model.

    Attributes:
        name: the path of a module, "encoder.layers.0", or a launch, "0.3".
        launches: in order.
    """

    name: str
    launches: tuple[Launch, ...]


def module_at(provenance: Provenance, depth: int | None) -> str:
    """The path of the module that a launch counts for: the last one, of those that it computes.

    Args:
        depth: the number of names of the path; None for as many as there are.
    """
    return ".".join(provenance.modules[-1].split(".")[:depth]) if provenance.modules else WHOLE


def parts_of(launches: Iterable[Launch], by: PartedBy, depth: int | None = None) -> tuple[ModelPart, ...]:
    """The parts of a model, in the order of their first launches.

    Args:
        depth: of modules; see `module_at`.
    """
    found: dict[str, list[Launch]] = {}
    for launch in launches:
        name = launch.id if by is PartedBy.LAUNCH else module_at(launch.site.provenance, depth)
        found.setdefault(name, []).append(launch)
    return tuple(ModelPart(name, tuple(of)) for name, of in found.items())
