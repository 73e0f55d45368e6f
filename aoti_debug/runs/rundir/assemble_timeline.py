"""Joins the journal's records with the manifest's sites: the launches, calls and faults of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain

from aoti_debug.base.abi import CallKind
from aoti_debug.base.errors import RunDirError
from aoti_debug.package.manifest import Kernel, Manifest
from aoti_debug.runs.rundir import watchpoints
from aoti_debug.runs.rundir.formats import journal_records
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.timeline import Launch, ModelCall, Timeline
from aoti_debug.runs.rundir.watchpoints import WatchpointRecord


def assemble(ordered: Iterable[journal_records.Record], manifest: Manifest) -> Timeline:
    """Joins records that are ordered by time; those of a launch whose beginning was overwritten are dropped.

    Raises:
        RunDirError: a record names a site that the manifest does not have.
    """
    records: dict[LaunchKey, Launch] = defaultdict(Launch)
    begins: list[journal_records.LaunchBegin] = []
    call_begins: list[journal_records.CallBegin] = []
    call_ends: dict[tuple[CallKind, int], journal_records.CallEnd] = {}
    faults: list[journal_records.FaultRecord] = []
    notes: list[journal_records.NoteRecord] = []
    damages: list[journal_records.GuardDamage] = []
    watched: list[WatchpointRecord] = []
    replays: dict[tuple[CallKind, int], int] = {}
    ended = False
    for record in ordered:
        match record:
            case journal_records.LaunchBegin():
                records[record.key].begin = record
                begins.append(record)
            case journal_records.LaunchEnd():
                records[record.key].end = record
            case journal_records.TensorStats():
                if record.replay is None:
                    records[record.key].measured += (record,)
                else:
                    records[record.key].replayed += (record,)
                    replays[record.key.kind, record.key.call] = record.begun
            case journal_records.GridRecord():
                records[record.key].grid_records += (record,)
            case journal_records.TensorFile():
                records[record.key].files += (record,)
            case journal_records.FaultRecord():
                faults.append(record)
                if record.launch is not None:
                    records[record.launch].fault = record
            case journal_records.PrintRecord():
                records[record.key].printed = record.text
            case journal_records.CallBegin():
                call_begins.append(record)
            case journal_records.CallEnd():
                call_ends[record.kind, record.call] = record
            case journal_records.NoteRecord():
                notes.append(record)
            case journal_records.GuardDamage():
                damages.append(record)
            case journal_records.WatchRecord() | journal_records.WatchHitRecord() | journal_records.WatchCountRecord():
                watched.append(record)
            case journal_records.RunEnd():
                ended = True
    kernels = {kernel.id: kernel for kernel in manifest.kernels}
    return Timeline(
        calls=tuple(
            _call(begin, call_ends.get(key := (begin.kind, begin.call)), replays.get(key)) for begin in call_begins
        ),
        launches=tuple(_with_site(records[begin.key], manifest, kernels) for begin in begins),
        faults=tuple(faults),
        notes=tuple(notes),
        damages=tuple(damages),
        watchpoints=watchpoints.join(watched, manifest),
        ended=ended,
    )


def _call(begin: journal_records.CallBegin, end: journal_records.CallEnd | None, replays: int | None) -> ModelCall:
    return ModelCall(
        kind=begin.kind,
        call=begin.call,
        thread=begin.thread,
        level=begin.level,
        capturing=begin.capturing,
        stream_slot=begin.stream_slot,
        stream=begin.stream,
        ended=end is not None,
        failed=end is not None and end.failed,
        begin_ns=begin.time_ns,
        end_ns=None if end is None else end.time_ns,
        replays=replays,
    )


def _with_site(launch: Launch, manifest: Manifest, kernels: Mapping[int, Kernel]) -> Launch:
    if launch.begin.site >= len(manifest.sites):
        raise RunDirError(
            f"the journal names site {launch.begin.site}, but the manifest has {len(manifest.sites)}",
            hint="the manifest belongs to another package: run the package again",
        )
    launch.site, launch.kernels = manifest.sites[launch.begin.site], kernels
    if launch.is_measured:
        _check_slots(launch)
    return launch


def _check_slots(launch: Launch) -> None:
    count = len(launch.site.args)
    for slot in chain((file.slot for file in launch.files), (stats.slot for stats in launch.stats)):
        if not 0 <= slot < count:  # one of a rescued tensor may be negative
            raise RunDirError(
                f"the run is damaged: a tensor of argument {slot} of launch {launch.id}, which has {count} arguments",
                hint="run the package again",
            )
