"""The memory of a recorded run."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.rundir.memory_file import MeasuredMemory
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.memory.handle_events import HandleEvent, handle_events
from aoti_debug.views.memory.lifetimes import call_memory
from aoti_debug.views.memory.storage_timeline import CallMemory, Memory
from aoti_debug.views.memory.workspace import workspaces


def run_memory(run: RunDir, measured: MeasuredMemory = MeasuredMemory()) -> Memory:  # noqa: B008 - it is frozen
    """The memory of each call of a run.

    Args:
        measured: the counters of its process.
    """
    events, missing = _events(run)
    calls = tuple(
        call_memory(run.manifest, tuple(launches), events)
        for _, launches in groupby(
            sorted(run.launches, key=lambda launch: launch.key), key=lambda launch: launch.key[:2]
        )
    )
    notes = (
        [f"when buffers are dropped is not known: {missing}; they are taken to live until their last use"]
        if missing
        else []
    )
    if any(launch.loops or launch.site.subgraph for launch in run.launches):
        notes.append("buffers of branches and loops are taken to live until their body ends")
    if run.journal is not None:
        calls = _with_workspace(calls, measured, run.journal.header.start_unix_ns)
    return Memory(calls, tuple(notes))


def _with_workspace(
    calls: tuple[CallMemory, ...], measured: MeasuredMemory, start_unix_ns: int
) -> tuple[CallMemory, ...]:
    """The calls with the workspace that was counted in the last one, if they launch the same."""
    if not calls or not measured.steps:
        return calls
    counted = calls[-1]
    found = workspaces(counted, measured, start_unix_ns)
    return tuple(replace(call, workspace=found) if _sites(call) == _sites(counted) else call for call in calls)


def _sites(call: CallMemory) -> list[int]:
    return [launch.site.id for launch in call.launches]


def _events(run: RunDir) -> tuple[tuple[HandleEvent, ...], str]:
    """The handle events of the run's wrapper, or the reason why there are none."""
    if run.package is None:
        return (), "the package that was run was not found"
    try:
        package = archive.inspect(run.required_package)
        sources = package.wrapper_sources(run.manifest.model)
        texts = [package.read(source).decode() for source in sources]
        return tuple(event for text in texts for event in handle_events(text, run.manifest.allocations)), ""
    except (AotiDebugError, UnicodeDecodeError) as error:
        return (), str(error)
