"""Runs a model and reads the memory of its calls from the run; as one JSON object: docs/memory.schema.json.

aoti-debug/memory/20261120-231501-4711/
  package.pt2 runs/   a package that was built for it, and its run
"""

from __future__ import annotations

from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.abi import Level
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data, stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.instrument.builder.build import BuildOptions, instrumented
from aoti_debug.runs.run import memory_meter, runner
from aoti_debug.runs.run.memory_meter import MeasuredMemory
from aoti_debug.runs.run.options import ModelCalls
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.memory import storage_timeline
from aoti_debug.views.memory.lifetimes import run_memory
from aoti_debug.views.memory.storage_timeline import Memory

FORMAT = 1


@dataclass(frozen=True)
class MemoryOptions(ModelCalls):
    """The model or run whose memory is shown, and how it is run.

    Attributes:
        what: an exported program, a compiled or an instrumented package; or a run directory or its name.
        out: the directory in which the directory of the run is made.
    """

    what: Path
    out: Path = field(default_factory=ResultKind.MEMORY.place)


@dataclass(frozen=True)
class RunMemory:
    """The memory of a run, from its journal and from the counters of its process.

    Attributes:
        measured: without calls if the run was not made by `aoti-debug memory`.
        model: the file name of the model; "" if it is not known.
    """

    run: RunDir
    memory: Memory
    measured: MeasuredMemory
    model: str = ""

    @property
    def snapshot(self) -> Path | None:
        """The file of the CUDA allocator's history; None if there is none."""
        path = self.run.path / memory_meter.SNAPSHOT
        return path if path.is_file() else None


def memory(options: MemoryOptions, listener: StepListener | None = None) -> RunMemory:
    """The memory of a run; a model is built and run for it.

    Raises:
        UsageError: an option is wrong, or the model is not trusted.
        ArtifactError: the model or its inputs are not what they should be.
        ToolchainError, TargetError: the model could not be built or started.
        RunDirError: the run cannot be read, or has no launch.
    """
    steps = Steps(listener)
    is_model = options.what.suffix == ".pt2"
    run = _recorded(options, steps) if is_model else run_directory.open_run(options.what)
    if not run.launches:
        raise RunDirError(f"run {run.path.name} has no launch", hint="aoti-debug show says how it ended")
    measured = memory_meter.read_memory(run.path)
    model = options.what.name if is_model else run.info.model
    return RunMemory(run, run_memory(run, measured), measured, model)


def _recorded(options: MemoryOptions, steps: Steps) -> RunDir:
    with stamped_directories.new_folder(options.out, "runs") as folder:
        package = _built(options, folder, steps)
        with steps.step("run") as note:
            chosen = replace(
                options.recorded(package, folder / "runs", options.what.name),
                level=Level.NAMES,
                environment={"AOTI_DEBUG_PRINT": "none"},
                memory=True,
            )
            run = runner.run(chosen, Observer()).run
            note.text = wording.pluralize(len(run.launches), "launch")
        return run


def _built(options: MemoryOptions, folder: Path, steps: Steps) -> Path:
    building = BuildOptions(options.what, output=folder / "package.pt2", user_code=options.user_code)
    return instrumented(options.what, building, steps, has_inputs=options.inputs is not None)


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
