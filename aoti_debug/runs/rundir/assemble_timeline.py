"""The timeline of a run, which joins the journal with the manifest's sites: its launches, calls and faults."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.rundir import watchpoints
from aoti_debug.runs.rundir.formats import journal_records
from aoti_debug.runs.rundir.formats.journal import Journal
from aoti_debug.runs.rundir.formats.journal_records import TensorFile
from aoti_debug.runs.rundir.launch_source import LaunchSource
from aoti_debug.runs.rundir.launches import Calls, Launches
from aoti_debug.runs.rundir.watchpoints import Watchpoint, WatchpointRecord


@dataclass(frozen=True)
class Timeline:
    """The calls, launches and faults of a run, in order of time."""

    calls: Calls
    launches: Launches
    faults: tuple[journal_records.FaultRecord, ...]
    notes: tuple[journal_records.NoteRecord, ...]
    damages: tuple[journal_records.GuardDamage, ...]  # to guards around buffers; on a device in the order of detection
    watchpoints: tuple[Watchpoint, ...]
    ended: bool  # by a normal unload of the package
    cut_short: bool  # and the recording had stopped before


def assemble(journal: Journal | None, rescued: Sequence[TensorFile], manifest: Manifest) -> Timeline:
    """Joins a journal; records of a launch whose beginning was overwritten are dropped.

    Args:
        journal: None if the run has none.
        rescued: tensors that count as saved.

    Raises:
        RunDirError: a record names a site or an argument that the manifest does not have.
    """
    faults: list[journal_records.FaultRecord] = []
    notes: list[journal_records.NoteRecord] = []
    damages: list[journal_records.GuardDamage] = []
    watched: list[WatchpointRecord] = []
    ended = cut_short = False
    for record in () if journal is None else journal.index.others:
        match record:
            case journal_records.FaultRecord():
                faults.append(record)
            case journal_records.NoteRecord():
                notes.append(record)
            case journal_records.GuardDamage():
                damages.append(record)
            case journal_records.WatchRecord() | journal_records.WatchHitRecord() | journal_records.WatchCountRecord():
                watched.append(record)
            case journal_records.RunEnd():
                ended, cut_short = True, record.cut_short
    source = LaunchSource(journal, manifest, faults, rescued)
    source.check()
    return Timeline(
        calls=Calls(source),
        launches=Launches(source),
        faults=tuple(faults),
        notes=tuple(notes),
        damages=tuple(damages),
        watchpoints=watchpoints.join(watched, manifest),
        ended=ended,
        cut_short=cut_short,
    )
