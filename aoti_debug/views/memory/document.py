"""The memory of a run as one JSON object (docs/memory.schema.json)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aoti_debug.base.machine.files import json_data
from aoti_debug.views.memory import storage_timeline
from aoti_debug.views.memory.memory import RunMemory

FORMAT = 1


def document(found: RunMemory) -> dict[str, Any]:
    """The JSON object; sizes in bytes."""
    worst = found.memory.worst
    assert worst is not None, "a run without launches has no memory"
    return {
        "format": FORMAT,
        "run": found.run.path.name,
        "path": str(found.run.path),
        "device": found.run.info.device,
        "peak": _peak(worst),
        "calls": [_call(call) for call in found.memory.calls],
        "measured": [asdict(call) for call in found.measured.calls],
        "growth": {
            "bytes_per_call": storage_timeline.growth_per_call(found.measured),
            "launches": [_kept(kept) for kept in storage_timeline.kept_memory(found.memory, found.measured)],
        },
        "snapshot": None if found.snapshot is None else str(found.snapshot),
        "notes": list(found.memory.notes),
    }


def _kept(kept: storage_timeline.KeptMemory) -> dict[str, Any]:
    source = kept.launch.site.provenance.source
    return {
        "launch": kept.launch.id,
        "kernel": kept.launch.kernel,
        "model_line": json_data.to_data(source[0]) if source else None,
        "bytes_per_call": kept.bytes,
        "calls": kept.calls,
        "measured": kept.is_measured,
    }


def _peak(call: storage_timeline.CallMemory) -> dict[str, Any]:
    launch = call.launches[call.peak]
    source = launch.site.provenance.source
    return {
        "bytes": call.peak_bytes,
        "workspace": call.workspace.get(call.peak, 0),
        "launch": launch.id,
        "kernel": launch.kernel,
        "model_line": json_data.to_data(source[0]) if source else None,
        "buffers": [storage.name for storage in call.live(call.peak)],
    }


def _call(call: storage_timeline.CallMemory) -> dict[str, Any]:
    return {
        "call": f"{call.launches[0].id.partition('.')[0]}",
        "peak": _peak(call),
        **{use.value + "s": call.total(use) for use in storage_timeline.Use},
        "allocated": [
            {"launch": launch.id, "bytes": count, "workspace": call.workspace.get(position, 0)}
            for position, (launch, count) in enumerate(zip(call.launches, call.allocated, strict=True))
        ],
        "storages": [_storage(storage, call) for storage in call.storages],
    }


def _storage(storage: storage_timeline.MemoryBlock, call: storage_timeline.CallMemory) -> dict[str, Any]:
    return {
        "names": list(storage.names),
        "use": storage.use.value,
        "bytes": storage.bytes,
        "device": storage.device,
        "first": call.launches[storage.first].id,
        "last": call.launches[storage.last].id,
        "made_by": storage.made_by or None,
    }
