"""The profile of a model: the time and work of its launch sites, and a hint about what could make each faster.

As one JSON object: docs/profile.schema.json. Times are seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.modules import LaunchTimes, SiteTime, TimeShare, modules_at, time_shares
from aoti_debug.package.manifest import Site
from aoti_debug.repro.operators import is_of_torch
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.profile.changes import Change, Changes
from aoti_debug.views.profile.device_calls import DeviceCall, MeasuredCall, MeasuringCost, complete_calls
from aoti_debug.views.profile.device_kernel import DeviceKernel, device_kernels
from aoti_debug.views.profile.roofline import Bound, Peaks, RooflinePlacement, Work, place
from aoti_debug.views.profile.site_work import SiteGroup

_NS = 1e-9
_NEAR = 0.7  # of the roofline
_CACHED = 1.05
FORMAT = 1


class Clock(str, Enum):
    """The meaning of the times of launches."""

    WORK = "work"  # from the beginning to the end of their work
    DEVICE = "device"  # on a GPU: of their kernels, copies and fills, by the GPU's own profiler
    WAITED = "waited"  # on a GPU: from the launch on the host until the GPU has completed it


CLOCKS = {
    Clock.WORK: "from the beginning to the end of each launch on the host",
    Clock.DEVICE: "of the kernels on the GPU, by its profiler",
    Clock.WAITED: "on the host, which waited for the GPU at each launch",
}


def clock_of(run: RunDir, cost: MeasuringCost | None) -> Clock:
    """The meaning of the times of the launches of a run.

    Args:
        cost: of measuring; None without the profiler of a GPU.
    """
    if cost is not None:
        return Clock.DEVICE
    return Clock.WAITED if run.manifest.device == "cuda" else Clock.WORK


@dataclass(frozen=True)
class ModuleTime:
    """The time of a module in a call, between that of its own launches and that of all it has a part in.

    Attributes:
        launches: that compute a part of it.
        seconds: of all these.
    """

    name: str
    launches: int
    seconds: float
    share: TimeShare


@dataclass(frozen=True)
class SiteProfile:
    """The launches of one site.

    Attributes:
        launch: the first of them in the first measured call.
        count: how many there are in a call, the median.
        samples: seconds in each measured call, of all launches of the site together.
        share: of the median call.
        work: of all launches of a call.
        placement: how close it is to this machine's roofline; None if its work is not known.
        kernel: the Triton kernel that it launches; None if it launches none.
    """

    launch: Launch
    count: int
    samples: tuple[float, ...]
    share: float
    work: Work
    placement: RooflinePlacement | None
    kernel: DeviceKernel | None = None

    @property
    def site(self) -> Site:
        """The launch site."""
        return self.launch.site

    @cached_property
    def seconds(self) -> float:
        """Seconds in a call, the median of the calls."""
        return statistics.median(self.samples)


@dataclass(frozen=True)
class ModelProfile:
    """The measured calls of a model.

    Attributes:
        model: the file that was named.
        sites: the slowest first.
        peaks: what this machine can do.
        cost: of measuring; None without the profiler of a GPU.
        on_device: the calls with the work of the GPU; None without its profiler.
        changes: against an older model; None if none was named.
    """

    model: Path
    run: RunDir
    calls: tuple[MeasuredCall, ...]
    sites: tuple[SiteProfile, ...]
    peaks: Peaks
    cost: MeasuringCost | None = None
    on_device: tuple[DeviceCall, ...] | None = None
    changes: Changes | None = None

    def against(self, changes: Changes) -> ModelProfile:
        """The profile with its changes from an older model's."""
        return replace(self, changes=changes)

    @property
    def highest_flops(self) -> float:
        """The highest rate of a contraction in float32, operations per second: this machine can do at least that."""
        return max(
            (s.work.flops / s.seconds for s in self.sites if s.work.flops and s.work.dtype == "float32" and s.seconds),
            default=0.0,
        )

    @cached_property
    def wall_seconds(self) -> float:
        """Seconds of a call of the model, the median."""
        return statistics.median(call.wall_ns for call in self.calls) * _NS

    @cached_property
    def gap_seconds(self) -> float:
        """Seconds of a call in which no launch was going on, the median."""
        return statistics.median(call.gaps_ns for call in self.calls) * _NS

    @property
    def launch_seconds(self) -> float:
        """The sum of the medians of all sites."""
        return sum(site.seconds for site in self.sites)

    @property
    def launches(self) -> int:
        """The number of launches in a call."""
        return sum(site.count for site in self.sites)

    @property
    def sum_to_wall(self) -> float:
        """Launches and gaps in proportion to the call: 1 but for what medians of different calls differ by."""
        return (self.launch_seconds + self.gap_seconds) / self.wall_seconds

    @property
    def clock(self) -> Clock:
        """The meaning of the times of its launches."""
        return clock_of(self.run, self.cost)

    def modules(self, depth: int | None = None) -> tuple[ModuleTime, ...]:
        """The modules, those that take most first; a launch of several is in all of them.

        Args:
            depth: the number of names in their paths; None for as many as there are.
        """
        times = LaunchTimes(
            sites=tuple(SiteTime(one.site.id, one.seconds) for one in self.sites),
            call=self.wall_seconds,
            calls=len(self.calls),
            source=CLOCKS[self.clock],
        )
        shares = time_shares([one.site for one in self.sites], times, depth)
        counts = {name: sum(one.count for one in self.sites if name in modules_at(one.site, depth)) for name in shares}
        found = [ModuleTime(name, counts[name], share.most * times.call, share) for name, share in shares.items()]
        return tuple(sorted(found, key=lambda module: -module.share.most))

    @property
    def warm_up(self) -> int:
        """The number of calls before those that are measured, or before the one that the CUDA graph captured."""
        return self.calls[0].recorded_call

    @property
    def are_replays(self) -> bool:
        """True if the calls are replays of a CUDA graph."""
        return self.calls[0].replay_of is not None

    @property
    def outside_seconds(self) -> float | None:
        """Seconds per call in the loader, outside of the model, by the clock of the process; None if not known."""
        calls = list(complete_calls(self.run))
        seconds = self.run.info.exit.seconds
        if seconds is None or self.cost is not None or len(calls) != self.run.info.all_calls:
            return None
        inside = sum((call.end_ns or call.begin_ns) - call.begin_ns for call in calls) * _NS
        return max(seconds - inside, 0.0) / len(calls)


def site_profiles(
    run: RunDir, calls: Sequence[MeasuredCall], works: dict[int, Work], peaks: Peaks
) -> tuple[SiteProfile, ...]:
    """The sites that the calls launched, the slowest first.

    Args:
        works: the work of one launch, by site.
    """
    wall = statistics.median(call.wall_ns for call in calls) * _NS
    first: dict[int, Launch] = {}
    numbers = {call.recorded_call for call in calls}
    for launch in run.launches:
        if launch.key.call in numbers:
            first.setdefault(launch.site.id, launch)
    kernels = device_kernels(run, first.values())
    found = []
    for site in {site for call in calls for site in call.launches_ns}:
        samples = tuple(call.launches_ns.get(site, 0) * _NS for call in calls)
        count = round(statistics.median(call.counts.get(site, 0) for call in calls))
        work = works.get(site, Work()) * count
        seconds = statistics.median(samples)
        placement = place(work, seconds, count, peaks)
        share = seconds / wall
        found.append(SiteProfile(first[site], count, samples, share, work, placement, kernels.get(site)))
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.site.id)))


def hint(site: SiteProfile) -> str:
    """A way to make the launches of a site faster; "" if nothing is known."""
    placement = site.placement
    if "::" in site.site.op and not is_of_torch(site.site.op):
        return "an operator of your own: what it does inside is not counted"
    if placement is None:
        return ""
    if placement.bound is Bound.LAUNCH:
        return "little work for each launch: fusion or larger tensors may help"
    if placement.bound is Bound.MEMORY:
        if placement.share > _CACHED:
            return "its tensors may stay in caches"
        if placement.share >= _NEAR:
            return "near the rate of the memory: fewer bytes may help, by fusion or a smaller dtype"
        return "moves memory slowly: maybe strided access, few threads, or uncounted arithmetic"
    if placement.share >= _NEAR:
        return "near the rate of arithmetic: fewer operations or a lower precision may help"
    return "computes below this machine's rate: sizes may be odd or small; try max_autotune"


def document(profile: ModelProfile, depth: int | None = None) -> dict[str, Any]:
    """The JSON object of a profile; launches and modules are the slowest first.

    Args:
        depth: of modules.
    """
    return {
        "format": FORMAT,
        "model": str(profile.model),
        "run": str(profile.run.path),
        "device": profile.run.manifest.device,
        "clock": profile.clock.value,
        "replays": profile.are_replays,
        "measuring": None if profile.cost is None else asdict(profile.cost),
        "torch": profile.run.info.torch_version,
        "warm_up": profile.warm_up,
        "calls": [
            {"call": call.call, "wall": call.wall_ns / 1e9, "gaps": call.gaps_ns / 1e9} for call in profile.calls
        ],
        "wall": profile.wall_seconds,
        "in_launches": profile.launch_seconds,
        "between_launches": profile.gap_seconds,
        "sum_to_wall": profile.sum_to_wall,
        "outside": profile.outside_seconds,
        "machine": _machine(profile.peaks),
        "launches": [_site(site) for site in profile.sites],
        "modules": [_module(module) for module in profile.modules(depth)],
        "against": None if profile.changes is None else _changes(profile.changes),
    }


def _module(module: ModuleTime) -> dict[str, Any]:
    return {"name": module.name, "launches": module.launches, "seconds": module.seconds, "share": module.share.data}


def _changes(changes: Changes) -> dict[str, Any]:
    return {
        "old": str(changes.old),
        "rounds": changes.rounds,
        "call": _change(changes.call),
        "launches": [_change(change) for change in changes.launches],
        "unpaired": [_change(change) for change in changes.unpaired],
        "notes": list(changes.notes),
    }


def _change(change: Change) -> dict[str, Any]:
    group = change.group or SiteGroup((), ())
    return {
        "old_sites": [{"site": site.id, "kernel": site.kernel} for site in group.old],
        "new_sites": [{"site": site.id, "kernel": site.kernel} for site in group.new],
        "old": list(change.old),
        "new": list(change.new),
        "ratio": change.ratio,
        "chance": change.chance,
        "verdict": change.verdict.value,
    }


def _machine(peaks: Peaks) -> dict[str, Any]:
    rates = [{"dtype": dtype, "flops_per_second": rate} for dtype, rate in peaks.flops.items()]
    return {"device": peaks.device, "bytes_per_second": peaks.bandwidth, "contractions": rates}


def _site(site: SiteProfile) -> dict[str, Any]:
    provenance, placement = site.site.provenance, site.placement
    source = provenance.source[0] if provenance.source else None
    return {
        "launch": site.launch.id,
        "site": site.site.id,
        "kernel": site.site.kernel,
        "kind": site.site.kind.value,
        "line": None if source is None else {"file": source.file, "line": source.line, "text": source.text.strip()},
        "modules": list(provenance.modules),
        "count": site.count,
        "seconds": site.seconds,
        "share": site.share,
        "samples": list(site.samples),
        "read": site.work.read,
        "written": site.work.written,
        "flops": site.work.flops,
        "roofline": None
        if placement is None
        else {"seconds": placement.least_seconds, "share": placement.share, "bound": placement.bound.value},
        "hint": hint(site),
        "kernel_resources": None if site.kernel is None else _kernel(site.kernel),
    }


def _kernel(kernel: DeviceKernel) -> dict[str, Any]:
    held = kernel.occupancy
    return {
        "name": kernel.name,
        "warps": kernel.warps,
        "shared": kernel.shared,
        "config": [{"name": name, "value": value} for name, value in kernel.config],
        "registers": kernel.registers,
        "occupancy": None
        if held is None
        else {"warps": held.warps, "most": held.most, "share": held.share, "limit": held.limit.value},
    }
