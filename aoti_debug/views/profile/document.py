"""A profile as one JSON object (docs/profile.schema.json). Times are seconds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aoti_debug.views.profile.changes import Change, Changes
from aoti_debug.views.profile.device_kernel import DeviceKernel
from aoti_debug.views.profile.model_profile import ModelProfile, SiteProfile, hint
from aoti_debug.views.profile.roofline import Peaks
from aoti_debug.views.profile.site_work import SiteGroup

FORMAT = 1


def document(profile: ModelProfile) -> dict[str, Any]:
    """The JSON object of a profile; launches are the slowest first."""
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
        "against": None if profile.changes is None else _changes(profile.changes),
    }


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
