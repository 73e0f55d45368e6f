"""The memory of a recorded run."""

from __future__ import annotations

from itertools import groupby

from aoti_debug.errors import AotiDebugError
from aoti_debug.memory.handle_events import HandleEvent, handle_events
from aoti_debug.memory.lifetimes import call_memory
from aoti_debug.memory.timeline import Memory
from aoti_debug.pt2 import archive
from aoti_debug.rundir.run_directory import RunDir


def run_memory(run: RunDir) -> Memory:
    """The memory of each call of a run."""
    events, missing = _events(run)
    calls = tuple(
        call_memory(run.manifest, tuple(launches), events)
        for _, launches in groupby(sorted(run.launches, key=lambda launch: launch.key), key=lambda launch: launch.key[:2])
    )
    notes = [f"when buffers are dropped is not known: {missing}; they are taken to live until their last use"] if missing else []
    if any(launch.loops or launch.site.subgraph for launch in run.launches):
        notes.append("buffers of branches and loops are taken to live until their body ends")
    return Memory(calls, tuple(notes))


def _events(run: RunDir) -> tuple[tuple[HandleEvent, ...], str]:
    """The handle events of the run's wrapper, or the reason why there are none."""
    if run.package is None:
        return (), "the package that was run is gone"
    try:
        package = archive.inspect(run.package)
        if package.manifest().source_sha256 != run.manifest.source_sha256:
            return (), f"{run.package} was rebuilt after the run"
        sources = package.wrapper_sources(run.manifest.model)
        return tuple(e for source in sources for e in handle_events(package.read(source).decode())), ""
    except (AotiDebugError, UnicodeDecodeError) as error:
        return (), str(error)
