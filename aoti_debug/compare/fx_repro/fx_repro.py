"""Writes the FX repro of a launch: the part of the graph that it computes, with its recorded tensors, checked once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import TargetError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.processes import child_process, python_process
from aoti_debug.base.machine.user_directories import scratch_directory
from aoti_debug.base.version import __version__
from aoti_debug.compare.compare_run import reference_of
from aoti_debug.compare.fx_repro.issue_text import issue_text
from aoti_debug.compare.fx_repro.module_text import HINT, ModuleText, module_text, without_folder
from aoti_debug.compare.fx_repro.script_text import DIFFERS, LAUNCHER, SCRIPT, launcher_text, script_text
from aoti_debug.compare.protocol.request import Region, Saved, SaveRequest
from aoti_debug.compare.regions.regions import UNRETURNED, fault_region, find_regions
from aoti_debug.package import recording_settings
from aoti_debug.package.program_graphs import Reference
from aoti_debug.repro.recorded_launch import fault_of, find_launch, require_inputs, require_trust
from aoti_debug.repro.repro import ReproOptions, run_again
from aoti_debug.repro.repro_files import check_free, default_path, unfinished
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun, open_diagnosed
from aoti_debug.runs.rundir.launch import Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir

ISSUE = "issue.md"
WORKER = "aoti_debug.compare.fx_repro.worker"
PREFIX = "repro_fx"
_SECONDS = 3600.0  # that a graph may take


class FxExtra(Enum):
    """A file that an FX repro may hold beside its script, by the option that asks for it."""

    MINIFIER = "--minifier"  # the script that torch's minifier starts from
    ISSUE = "--issue"  # a text for torch's tracker


@dataclass(frozen=True, kw_only=True)
class FxRepro:
    """An FX repro that was written.

    Attributes:
        path: the folder.
        launch: "0.3"
        run: the run that its tensors come from.
        calls: how many operators its module calls.
        inputs, outputs: how many tensors it takes and returns.
        lines: what its script printed when it was run once.
        code: the exit code of the script: 0 if the graph computes what was recorded, 10 if not.
        files: what to run next, and the issue text.
    """

    path: Path
    launch: str
    run: Path
    calls: int
    inputs: int
    outputs: int
    lines: tuple[str, ...]
    code: int
    files: tuple[Path, ...]


def write_fx_repro(
    options: ReproOptions, extras: Collection[FxExtra] = (), say: Callable[[str], None] = lambda text: None
) -> FxRepro:
    """Writes the part of the graph that a launch computes as a script, and runs the script once.

    Args:
        options: the output is `repro_fx_<kernel>_<launch>` in the home by default.
        extras: what to write beside it.
        say: is told what happens, a line each.

    Raises:
        UsageError: one file is asked for, there is no such kernel or launch, its part of the graph has no form in FX,
            something is there already, or the run was not made on this account and is not trusted.
        ArtifactError: the package holds no graph.
        RunDirError: the run cannot be read, or saved too little and cannot be repeated.
        TargetError: the tensors cannot be saved.
    """
    if options.one_file is not None:
        asked = next(iter(extras)).value if extras else "--fx"
        raise UsageError(f"--single-file and {asked} exclude each other", hint="pass one of them")
    diagnosed = options.run if isinstance(options.run, DiagnosedRun) else open_diagnosed(options.run)
    suspects = diagnosed.verdict.suspects if diagnosed.verdict else ()
    selected = find_launch(diagnosed.run, options.kernel, options.launch, suspects)
    require_trust(diagnosed.run, selected, trusted=options.trusted)
    path = options.output or default_path(selected, PREFIX)
    check_free(path, force=options.force)
    recorded, reference, region = recorded_region(diagnosed.run, selected, say, trusted=options.trusted)
    graph = reference.graph(region.graph, region.function)
    assert graph is not None
    module = module_text(reference, graph, region)
    if FxExtra.ISSUE in extras and module.custom:
        raise UsageError(
            f"the script of an issue needs only torch, and {module.custom[0]} does not come with it",
            hint="attach the folder that --fx writes",
        )
    header = list(_header(recorded, selected, region, module))
    imports = tuple(dict.fromkeys((*recorded.manifest.imports, *recorded.info.imports)))
    libraries = tuple(dict.fromkeys((*recorded.manifest.libraries, *recorded.info.libraries)))
    settings = torch_settings.statements(recorded.info.torch_settings)
    texts = {SCRIPT: script_text(module, header, settings, imports, libraries)}
    if FxExtra.MINIFIER in extras:
        texts[LAUNCHER] = launcher_text()
    with unfinished(path, force=options.force) as folder:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        package, device = str(recorded.package), recorded.manifest.device
        saved = _save(
            SaveRequest(
                package=package,
                region=region,
                inputs=tuple(module.inputs),
                outputs=module.outputs,
                device=device,
                imports=imports,
                libraries=libraries,
                folder=str(folder),
            )
        )
        if FxExtra.ISSUE in extras:
            observed = _observed(fault_of(selected, diagnosed.verdict), saved)
            public = module_text(reference, graph, region, without_folder)
            text = issue_text(public, saved.inputs, saved.versions, device, observed)
            (folder / ISSUE).write_text(text, encoding="utf-8")
    return FxRepro(
        path=path,
        launch=selected.id,
        run=recorded.path,
        calls=module.calls,
        inputs=len(module.inputs),
        outputs=len(module.outputs),
        lines=saved.lines,
        code=saved.code,
        files=tuple(path / name for name in (SCRIPT, LAUNCHER, ISSUE) if (path / name).is_file()),
    )


def _header(run: RunDir, launch: Launch, region: Region, module: ModuleText) -> Iterator[str]:
    version = run.info.torch_version or run.manifest.torch_version
    operators = wording.pluralize(module.calls, "operator")
    yield f"Launch {launch.id} of {launch.kernel} as a graph: {operators}, with the recorded inputs and outputs."
    yield f"written by  aoti-debug {__version__}"
    yield f"run         {run.path.name}, started {run.info.started}, torch {version}, {run.manifest.device}"
    if len(region.launches) > 1:
        yield f"launches    {', '.join(region.launches)}: only together do they compute values of the graph"
    yield from (f"note        {note}" for note in region.notes)
    yield "Exit codes: 0 as recorded, 10 not as recorded; any other: an operator failed."


def _observed(fault: str, saved: Saved) -> list[str]:
    """The sentences of an issue text about what was observed."""
    if saved.code not in (0, DIFFERS):
        return [*([fault] if fault else []), f"eager, called one operator after the other, fails: {saved.lines[-1]}"]
    differing = [line for line in saved.lines if ": DIFFERS: " in line]
    return [fault] if fault else [f"eager against what the kernel wrote: {line}" for line in differing]


def _save(request: SaveRequest) -> Saved:
    """Has a process save the tensors and run the script.

    Raises:
        UsageError: they were not recorded as a whole.
        TargetError: the process failed.
    """
    with scratch_directory() as folder:
        log = folder / "saved.log"
        saved, code = python_process.ask(WORKER, request, Saved, folder, "saved", seconds=_SECONDS)
        if saved is None:
            raise _not_saved(f"the process ended with {child_process.describe_end(code, log)}")
        said = log.read_text(errors="replace").splitlines()
    if code:
        ended = f"the script ended with {child_process.describe_exit(code)}"
        return replace(saved, lines=(*said, ended), code=code)
    if saved.refusal:
        raise UsageError(saved.refusal, hint=HINT)
    return saved


def _not_saved(reason: str) -> TargetError:
    return TargetError(f"the tensors cannot be saved: {reason}", hint="aoti-debug doctor checks this machine")


def recorded_region(
    run: RunDir, launch: Launch, say: Callable[[str], None], *, trusted: bool
) -> tuple[RunDir, Reference, Region]:
    """A run with the tensors of a launch, the graphs of its package, and the part of them that the launch computes.

    Raises:
        UsageError: no part of the graphs is what it computes.
        ArtifactError: the package holds no graph.
        RunDirError: the run cannot be read, or saved too little and cannot be repeated.
    """
    reference, _ = reference_of(run)
    region, reason = _region(run, launch, reference)
    if region is None and not _is_whole(run):
        require_inputs(run, launch)
        level = recording_settings.written_level(run.level)
        say(f"{run.path.name} (level {level}) has not all tensors of launch {launch.id}")
        say("running the package again at level 1")
        run = run_again(run, launch, trusted=trusted, all_launches=True).run
        say(f"recorded in {wording.short_path(run.path)}")
        region, reason = _region(run, run.launch(launch.id), reference)
    if region is None:
        raise UsageError(f"launch {launch.id} of {launch.kernel} has no part of the graph: {reason}", hint=HINT)
    return run, reference, region


def _is_whole(run: RunDir) -> bool:
    """True if the run saved tensors of every launch: repeating it gives no more."""
    return all(
        any(saved.path for a in launch.args for saved in a.files.values())
        for launch in run.launches
        if any(a.layout is not None for a in launch.args)
    )


def _region(run: RunDir, launch: Launch, reference: Reference) -> tuple[Region | None, str]:
    """The region of a launch, or that which it is a part of; else the reason why there is none."""
    if not run.has_tensors:
        return None, "no tensors were saved"
    if launch.status is not LaunchStatus.RETURNED:
        region = fault_region(run, reference, launch)
        return (region, "") if region and region.nodes else (None, UNRETURNED[launch.status])
    found = find_regions(run, reference)
    around = [region for region in found.regions if region.launch == launch.id]
    around += [region for region in found.regions if launch.id in region.launches]
    if around:
        return around[0], ""
    return None, next((item.reason for item in found.uncovered if item.launch == launch.id), "it writes no tensor")
