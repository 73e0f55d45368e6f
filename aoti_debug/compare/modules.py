"""The parts of a model that its launches belong to: modules at a chosen depth, or each launch by itself; their time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Provenance, Site
from aoti_debug.runs.rundir.launch import Launch

WHOLE = "(model)"  # the part of launches of which no module is known
_ROOT = "L['self']"  # the path that torch gives the model itself
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


def module_of_path(path: str, depth: int | None) -> str:
    """The part of a model that a path of a module is of; WHOLE for the path of the model itself.

    Args:
        depth: see `module_at`.
    """
    return _cut(path, depth) if path and path != _ROOT else WHOLE


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


@dataclass(frozen=True)
class SiteTime:
    """Seconds of all launches of a site in a call.

    Attributes:
        site: its id in the manifest.
    """

    site: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class LaunchTimes:
    """The times of the launches of a model in a call.

    Attributes:
        sites: medians of the calls.
        call: seconds of a call: these, and the time between launches.
        calls: how many were measured.
        source: where the times come from, as a sentence.
    """

    sites: tuple[SiteTime, ...]
    call: float
    calls: int
    source: str


@dataclass(frozen=True)
class TimeShare:
    """The share of a module in the time of a call.

    Attributes:
        least: that of the launches that compute this module alone.
        most: that of all launches that compute a part of it.
        together: the other modules that these compute.
    """

    least: float
    most: float
    together: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.most:.1%}" if self.least == self.most else f"{100 * self.least:.1f}\u2013{self.most:.1%}"

    @property
    def data(self) -> dict[str, Any]:
        """The share as JSON data."""
        return {"least": self.least, "most": self.most, "together": list(self.together)}


TIME_LEGEND = (
    "time: of a call; a range from the launches that compute this module alone to all that compute a part of it, as "
    "the time of a launch cannot be divided"
)


def modules_at(site: Site, depth: int | None) -> tuple[str, ...]:
    """The modules that the launches of a site compute; WHOLE where none is known."""
    return tuple(dict.fromkeys(_cut(path, depth) for path in site.provenance.modules)) or (WHOLE,)


def time_shares(sites: Iterable[Site], times: LaunchTimes, depth: int | None = None) -> dict[str, TimeShare]:
    """The shares of the modules, each launch in all modules that it computes; in the order of the sites.

    Args:
        depth: of modules; see `module_at`.
    """
    seconds = {one.site: one.seconds for one in times.sites}
    least: dict[str, float] = {}
    most: dict[str, float] = {}
    together: dict[str, dict[str, None]] = {}
    for site in sites:
        if site.id not in seconds:
            continue
        names = modules_at(site, depth)
        for name in names:
            most[name] = most.get(name, 0.0) + seconds[site.id]
            least[name] = least.get(name, 0.0) + (seconds[site.id] if len(names) == 1 else 0.0)
            together.setdefault(name, {}).update(dict.fromkeys(other for other in names if other != name))
    return {name: TimeShare(least[name] / times.call, most[name] / times.call, tuple(together[name])) for name in most}


def fused_times_note(parts: Iterable[ModelPart], shares: Mapping[str, TimeShare]) -> str:
    """The times of modules that have no launch of their own, as a sentence; "" where there are none."""
    own = {part.name for part in parts}
    fused = [f"{name} {share}" for name, share in shares.items() if name not in own]
    return f"note: time of modules without a row: {wording.join_truncated(fused, _MAX_FUSED)}" if fused else ""
