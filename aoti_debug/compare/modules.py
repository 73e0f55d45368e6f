"""The parts of a model that its launches belong to: modules at a chosen depth, or each launch by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Provenance
from aoti_debug.runs.rundir.timeline import Launch

WHOLE = "(model)"  # the part of launches of which no module is known
_MAX_FUSED = 6  # are named


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
        also: other modules that they compute a part of, which does not count there.
    """

    name: str
    launches: tuple[Launch, ...]
    also: tuple[str, ...] = ()


def module_at(provenance: Provenance, depth: int | None) -> str:
    """The path of the module that a launch counts for: the last one, of those that it computes.

    Args:
        depth: the number of names of the path; None for as many as there are.
    """
    return _cut(provenance.modules[-1], depth) if provenance.modules else WHOLE


def _cut(path: str, depth: int | None) -> str:
    return ".".join(path.split(".")[:depth])


def parts_of(launches: Iterable[Launch], by: PartedBy, depth: int | None = None) -> tuple[ModelPart, ...]:
    """The parts of a model, in the order of their first launches.

    Args:
        depth: of modules; see `module_at`.
    """
    found: dict[str, list[Launch]] = {}
    for launch in launches:
        name = launch.id if by is PartedBy.LAUNCH else module_at(launch.site.provenance, depth)
        found.setdefault(name, []).append(launch)
    if by is PartedBy.LAUNCH:
        return tuple(ModelPart(name, tuple(of)) for name, of in found.items())
    return tuple(ModelPart(name, tuple(of), _others(name, of, depth)) for name, of in found.items())


def _others(name: str, launches: Sequence[Launch], depth: int | None) -> tuple[str, ...]:
    paths = (_cut(path, depth) for launch in launches for path in launch.site.provenance.modules)
    return tuple(dict.fromkeys(path for path in paths if path != name))


def fused_note(parts: Iterable[ModelPart]) -> str:
    """The modules of which a launch counts for another one, as a sentence; "" where there are none."""
    fused = [f"{name} in {part.name}" for part in parts for name in part.also]
    if not fused:
        return ""
    names = wording.join_truncated(fused, _MAX_FUSED)
    return f"note: a launch that computes several modules counts for the last of them alone: {names}"
