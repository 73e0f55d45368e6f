"""Standalone repros: one launch of a recorded run, replayed alone from its saved tensors."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base import wording
from aoti_debug.base.abi import NoteCode
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package import recording_settings
from aoti_debug.package.manifest import Kind, Manifest
from aoti_debug.repro.arguments import ReproArguments, arguments_of
from aoti_debug.repro.generate_texts import generate, kind_of
from aoti_debug.repro.recorded_launch import (
    RecordedLaunch,
    again_hint,
    fault_of,
    find_launch,
    recorded_launch,
    require_inputs,
    require_trust,
)
from aoti_debug.repro.repro_files import check_free, default_path, single_file, tensor_files, write_file, write_folder
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun, open_diagnosed
from aoti_debug.runs.rundir.formats.stored_tensor import bytes_of
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind

if TYPE_CHECKING:
    from aoti_debug.repro.kernel_header import KernelHeader

_LIMITS = "AOTI_DEBUG_MAX_BYTES, AOTI_DEBUG_MAX_FILES and AOTI_DEBUG_MAX_TENSOR_BYTES limit what is saved"
_NEVER_SAVED = "tensors of this layout are never saved; aoti-debug show {} shows what is recorded"
HANG_SECONDS = 300.0  # for the package to run again where the first run was ended by its time-out


@dataclass(frozen=True)
class Repro:
    """A repro that was written.

    Attributes:
        path: the folder, or the one file.
        launch: "0.3"
        run: the run that its tensors come from.
        tensors: how many arguments and results it holds.
        fault: what the recorded launch ended in; "" if it ended well.
    """

    path: Path
    kernel: str
    launch: str
    run: Path
    tensors: int
    bytes: int
    fault: str

    @property
    def script(self) -> Path:
        """The script to run."""
        return self.path / "repro.py" if self.path.is_dir() else self.path

    def __str__(self) -> str:
        size = f"{wording.pluralize(self.tensors, 'tensor')}, {wording.byte_size(self.bytes)}"
        lines = [f"{self.path}", f"  launch {self.launch} of {self.kernel}, {size}, from {self.run.name}"]
        lines += [f"  it ended in {self.fault}"] if self.fault else []
        return "\n".join([*lines, f"next: {shlex.join(['python', str(self.script)])}"])


@dataclass(frozen=True)
class ReproOptions:
    """The launch to replay, and where its repro is written.

    Attributes:
        kernel: a launch, a kernel, a pattern of names, a line of the model; "" for what the fault is laid to.
        run: a run that is open, a run directory or its name; None for the newest run.
        launch: "0.3"; None for the launch that the run's fault is laid to, or else the kernel's first.
        output: what to write; None for `repro_<kernel>_<launch>` in the home, with `.py` if it is one file.
        one_file: how many bytes one file that holds everything may carry, compressed; None for a folder.
        trusted: write it even if the run was not made on this account.
        force: replace an earlier repro.
        fault: what the launch is taken to have ended in; "" for what the run says.
    """

    kernel: str = ""
    run: DiagnosedRun | str | Path | None = None
    launch: str | None = None
    output: Path | None = None
    one_file: int | None = None
    trusted: bool = False
    force: bool = False
    fault: str = ""


def write_repro(options: ReproOptions, say: Callable[[str], None] = lambda text: None) -> Repro:
    """Writes what replays a launch; where the run saved no tensors of it, runs it again first.

    Args:
        say: is told what happens, a line each.

    Raises:
        UsageError: no launch or several kernels are named, it cannot be replayed, it is too large for one file,
            something is there already, or the run was not made on this account and is not trusted.
        RunDirError: the run cannot be read, or holds too little of the launch and cannot be repeated.
    """
    diagnosed = options.run if isinstance(options.run, DiagnosedRun) else open_diagnosed(options.run)
    opened, verdict = diagnosed.run, diagnosed.verdict
    selected = find_launch(opened, options.kernel, options.launch, verdict.suspects if verdict else ())
    require_trust(opened, selected, trusted=options.trusted)
    recorded = _recorded(diagnosed, selected, options.fault)
    kind_of(recorded, opened.manifest)
    path = options.output or default_path(recorded, suffix="" if options.one_file is None else ".py")
    check_free(path, force=options.force)

    arguments = arguments_of(recorded)
    if any(arguments.missing(fault=bool(recorded.fault))):
        require_inputs(opened, selected)
        level = recording_settings.written_level(opened.level)
        say(f"{opened.path.name} (level {level}) has no tensors of launch {selected.id}")
        say("running the package again at level 1 for this launch")

        diagnosed = run_again(opened, selected, trusted=options.trusted)
        opened = diagnosed.run
        say(f"recorded in {wording.short_path(opened.path)}")
        recorded = _recorded(diagnosed, opened.launch(selected.id), options.fault)
        arguments = arguments_of(recorded)
    _check_complete(opened, recorded, arguments)
    contents = generate(recorded, opened.manifest, arguments)
    tensors = tensor_files(arguments)
    if options.one_file is None:
        write_folder(path, contents, arguments, _header(recorded, opened.manifest), force=options.force)
    else:
        write_file(path, single_file(contents, tensors, options.one_file), force=options.force)
    size = sum(bytes_of(file) for file in tensors.values())
    count = len(arguments.tensors) + len(arguments.results)
    return Repro(path, selected.kernel, recorded.id, opened.path, count, size, recorded.fault)


def _recorded(diagnosed: DiagnosedRun, launch: Launch, fault: str) -> RecordedLaunch:
    return recorded_launch(diagnosed.run, launch, fault or fault_of(launch, diagnosed.verdict))


def _header(recorded: RecordedLaunch, manifest: Manifest) -> KernelHeader | None:
    if recorded.site.kind is not Kind.CPP:
        return None
    from aoti_debug.repro import kernel_header  # finds a compiler; other kernels and operators do without it

    kernel = manifest.kernel(recorded.site.kernel)
    return None if kernel is None else kernel_header.find(manifest.compiler, kernel.source)


def missing_inputs(diagnosed: DiagnosedRun, launch: Launch) -> tuple[str, ...]:
    """A text for each input of a faulty launch that a replay needs and its run did not save, with the reason."""
    return tuple(arguments_of(recorded_launch(diagnosed.run, launch, "a fault")).missing(fault=True))


def _check_complete(run: RunDir, recorded: RecordedLaunch, arguments: ReproArguments) -> None:
    missing = list(arguments.missing(fault=bool(recorded.fault)))
    if missing:
        stops = (note.text for note in run.timeline.notes if note.code == NoteCode.RECORDING_STOPPED)
        raise RunDirError(
            f"launch {recorded.id} of {recorded.site.kernel} cannot be replayed; not saved: "
            + "; ".join([*missing, *stops]),
            hint=_NEVER_SAVED.format(recorded.id) if all(map(_is_never_saved, missing)) else _LIMITS,
        )


def _is_never_saved(missing: str) -> bool:
    """True if the runtime saves no tensor of the kind, whatever is asked for: it has no strides, or is quantized."""
    return "(not read: layout " in missing or "(not read: quantized " in missing


def run_again(run: RunDir, launch: Launch, *, trusted: bool, all_launches: bool = False) -> DiagnosedRun:
    """Repeats the run at level 1 with the same inputs, to save the tensors of one launch.

    Args:
        launch: that has to come again.
        trusted: run the package even if it was not made on this account.
        all_launches: save the tensors of the other launches too.

    Raises:
        RunDirError: the package is not known or gone, or the launch did not come again.
    """
    from aoti_debug.base.machine import torch_settings  # few repros need all that runs a package
    from aoti_debug.base.machine.user_code import UserCode
    from aoti_debug.runs.run import runner
    from aoti_debug.runs.run.options import RunOptions

    if run.package is None:
        raise RunDirError(
            f"{run.path.name} saved no tensors of launch {launch.id}, and does not say where its package is",
            hint=again_hint(run, launch),
        )
    result = runner.run(
        RunOptions(
            run.package,
            inputs=run.inputs,
            level=1,
            filters=(),
            phase="both",
            out=run.path.parent,
            calls=max(run.info.calls, launch.key.call + 1),
            timeout=HANG_SECONDS if run.state is ExitKind.TIMEOUT else None,
            user_code=UserCode(trusted=trusted).after(run.info.imports, run.info.libraries),
            environment=torch_settings.environment(run.info.torch_settings),
            launch=None if all_launches else launch.id,
        )
    )
    repeated = next((x for x in result.run.launches if x.key == launch.key), None)
    if repeated is None or repeated.site.id != launch.site.id:
        change = "did not come again" if repeated is None else f"was {repeated.kernel} this time"
        raise RunDirError(
            f"launch {launch.id} of {launch.kernel} {change} ({result.run.path})",
            hint="the model does not take the same path every time: run it at level 1",
        )
    return result.diagnosed
