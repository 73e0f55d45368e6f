"""The triage of a core file: nothing is run again but the launch that the process ended in, with its inputs.

The stacks name the launch site. Where the package had recorded something, its run directory names the launch; what it
read is in the core, so that there is a repro.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.base.native import core_file, core_stacks, crash_stacks
from aoti_debug.base.native.core_file import CoreFile
from aoti_debug.base.native.crash_stacks import Backtrace, Stack
from aoti_debug.instrument.builder import join_program
from aoti_debug.instrument.builder.build import manifest_of
from aoti_debug.package.manifest import Manifest, Site
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import Artifact, ArtifactKind
from aoti_debug.runs.diagnosis import rescue
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun, open_diagnosed
from aoti_debug.runs.diagnosis.findings import FAULT, HANG, Finding, Place, place_of
from aoti_debug.runs.diagnosis.verdict_text import crash_text, finding_of
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.run.running_process import PackageState
from aoti_debug.runs.rundir import run_directory, run_json
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from aoti_debug.runs.show.verdict import argument_sentences
from aoti_debug.triage import session
from aoti_debug.triage.checks import faults
from aoti_debug.triage.investigation import core_launch, gpu_core
from aoti_debug.triage.investigation.core_launch import SiteInCore
from aoti_debug.triage.investigation.investigation import Investigation, Outcome, SoFar, Suspicion
from aoti_debug.triage.investigation.triage_runs import TriageOptions, TriageRuns
from aoti_debug.triage.results import triage_directory
from aoti_debug.triage.results.triage_directory import TriageDir

_TENSORS = "tensors"  # the folder of a run whose files are never changed
_ACCESSES = ("SIGSEGV", "SIGBUS")
_WROTE_IT = "the core was written while the process ran: no signal ended it"
_NOT_INSTRUMENTED = (
    "a package that is not instrumented keeps no list of its launches, and their arguments are not known: what "
    "`aoti-debug build` writes does, with AOTI_DEBUG_LEVEL=3 in the environment of the process that loads it"
)
_HOW_LONG = "how long it had been there, nothing in the core says"


def triage_core(
    options: TriageOptions,
    package: Path | None,
    listener: StepListener | None = None,
    *,
    command: Sequence[str] = (),
) -> TriageDir:
    """Finds out what a process with a package, or its GPU, was doing when its core file was written.

    Args:
        options: the core file as `model`; with `exported`, model lines of a compiled package.
        package: that the process had loaded; None where its run directory is there still.
        listener, command: as of `session.triage`.

    Raises:
        UsageError: it is not the package of the core, or is not known.
        ArtifactError: the core or the package is damaged, or the program of the process is gone.
        ToolchainError: there is no gdb (of a GPU's core dump: no cuda-gdb), or it cannot read the core.
    """
    return session.recorded(options, listener, command, partial(_investigate, package))


@dataclass(frozen=True)
class _Case:
    """A core file and what was read out of it.

    Attributes:
        stacks: first the one of the thread that received the signal.
        manifest: of the package.
        library: the file of the package that the frames are of.
        state: what the runtime said of itself; None of a package that is not instrumented.
        run: the directory of the run that it made; None if it recorded nothing, or that is gone.
        package: that was given.
    """

    core: CoreFile
    stacks: tuple[Stack, ...]
    manifest: Manifest
    library: str
    state: PackageState | None
    run: Path | None
    package: Path | None

    @property
    def stack(self) -> Stack:
        """The stack of the thread that received the signal."""
        return self.stacks[0]

    @property
    def signal(self) -> str:
        """The signal that ended the process; "" if none did."""
        return self.core.signal.name


def _investigate(package: Path | None, options: TriageOptions, folder: Path, steps: Steps) -> Outcome:
    words = () if package is None else ("--package", str(package))
    so_far = SoFar("the core file was not read to its end", words)
    return session.limited(partial(_read, package), options, folder, steps, so_far)


def _read(package: Path | None, options: TriageOptions, folder: Path, steps: Steps, so_far: SoFar) -> Outcome:
    if core_file.is_gpu_core(options.model):
        return _of_gpu(package, options, folder, steps)
    with CoreFile(options.model) as core, cache.scratch() as unpacked:
        given = None if package is None else _package(package, options.name)
        library = "" if given is None else core_launch.library_of(core, given, unpacked)
        states = core_launch.package_states(core)
        state = next((s for s in states if not library or str(s.library) == library), None)
        run = None if state is None or state.run_directory is None else _run_of(state.run_directory)
        if given is None and (run is None or state is None):
            raise core_launch.unknown_package(core)
        with steps.step("core file") as note:
            stacks = _stacks(core)
            ended = core.signal.name or "no signal"
            note.text = f"{ended} in thread {stacks[0].thread} of {wording.pluralize(len(stacks), 'thread')}"
        if given is not None:
            manifest = _manifest(given, options, folder)
            (folder / session.PACKAGE).symlink_to(given.path.resolve())
        else:
            assert run is not None
            assert state is not None
            manifest, library = run_directory.open_run(run).manifest, str(state.library)
        case = _Case(core, stacks, manifest, library, state, run, package)
        found = _of_stack(case) if run is None else _of_run(case, run, options, folder, steps, so_far)
        return _with_remark(found, manifest, options.exported)


_OTHERS = (
    "model lines: lowered here, --exported has none of the package's launches; --inductor-config changes how it is"
)


def _with_remark(found: Outcome, manifest: Manifest, exported: Path | None) -> Outcome:
    """The outcome with a remark where the exported program that was given has told no model lines."""
    if exported is None or not join_program.lacks_model_lines(manifest):
        return found
    return replace(found, finding=replace(found.finding, warnings=(*found.finding.warnings, _OTHERS)))


def _of_gpu(package: Path | None, options: TriageOptions, folder: Path, steps: Steps) -> Outcome:
    """What the core dump of a GPU and the package tell: the kernel, its launch site, no values.

    One that `run` has had the driver write lies in the run directory: its launches have arguments.
    """
    given = None if package is None else _package(package, options.name)
    with steps.step("core dump of a GPU") as note:
        core = gpu_core.read(options.model)
        note.text = f"{core.exception or 'no exception'} in {core.kernel or 'an unknown kernel'}"
    run = _run_of(options.model.absolute().parent) if options.model.name == run_directory.GPU_CORE else None
    diagnosed = None if run is None else open_diagnosed(run)
    if diagnosed is not None and given is None:
        manifest: Manifest | None = diagnosed.run.manifest
    else:
        manifest = None if given is None else _manifest(given, options, folder)
    finding = gpu_core.finding_of(core, manifest)
    launch = None if diagnosed is None else gpu_core.launch_of(core, diagnosed)
    if diagnosed is not None and launch is not None:
        finding = replace(finding, where=place_of(launch), possible=(), warnings=())
        finding = gpu_core.with_arguments(finding, core, launch, diagnosed.run.manifest)
    elif manifest is not None:
        finding = gpu_core.with_parameters(finding, core, manifest)
    if package is not None and given is not None and given.kind is not ArtifactKind.INSTRUMENTED:
        finding = replace(finding, next=(shlex.join(["aoti-debug", "build", str(package)]),))
    return Outcome(finding, None if diagnosed is None else diagnosed.run)


def _package(path: Path, name: str) -> Artifact:
    """Raises UsageError if it is no package that a process can load."""
    found = archive.inspect(path)
    if found.kind is ArtifactKind.EXPORTED:
        raise UsageError(
            f"{path} is an exported program", hint="--package names the package that the process had loaded"
        )
    if found.is_stripped(name):
        raise UsageError(
            f"{path} holds no source, which would say what its frames are", hint="--package: the one with sources"
        )
    return found


def _manifest(package: Artifact, options: TriageOptions, folder: Path) -> Manifest:
    if package.kind is ArtifactKind.INSTRUMENTED:
        return package.manifest()
    return manifest_of(replace(options, model=package.path).building(package, folder / session.PACKAGE))


def _run_of(path: Path) -> Path | None:
    """The directory of a run, if it is there still."""
    return path if (path / run_json.NAME).is_file() else None


def _stacks(core: CoreFile) -> tuple[Stack, ...]:
    """The stacks, the first with the address that its thread accessed, also where only its instruction says it."""
    unwound = core_stacks.unwind(core)
    first, *others = core_stacks.symbolized(core, unwound)
    if first.address is None and first.signal in _ACCESSES and core.signal.is_of_processor:
        first = replace(first, address=unwound.accessed)
    return (first, *others)


# A package that recorded nothing


def _of_stack(case: _Case) -> Outcome:
    """What the stack and the package tell: the launch site, no values."""
    stack, found = _guilty(case)
    site = found.site
    where = (
        None
        if site is None
        else Place(kernel=site.kernel, operator=site.op, frame=next(iter(site.provenance.source), None))
    )
    evidence = [_ended(case), found.why]
    possible = []
    if len(found.sites) > 1:
        lines = wording.join_truncated([f"wrapper line {each.line}" for each in found.sites], 6)
        possible.append(f"it may be any of {len(found.sites)} launches of {found.sites[0].kernel}: {lines}")
    if stack.address is not None:
        evidence.append(f"the thread accessed address {stack.address:#x}")
    others = core_launch.others_in_launches(case.stacks, stack, case.library, case.manifest)
    thrown = core_launch.thrown(case.core, stack)
    return Outcome(
        Finding(
            FAULT if case.signal else HANG,
            thrown.message or _headline(case, site, len(others)),
            where,
            evidence=(*evidence, *others, *thrown.evidence),
            possible=(*possible, *thrown.possible),
            stack=crash_stacks.useful(stack),
            signal=case.signal,
            address=stack.address,
            next=_record_it(case),
            warnings=_why_no_values(case),
        ),
        None,
    )


def _guilty(case: _Case) -> tuple[Stack, SiteInCore]:
    """The stack of the signal; of a core without one, the first that is in a launch."""
    found = [(stack, core_launch.site_of(stack, case.library, case.manifest)) for stack in case.stacks]
    inside = next((pair for pair in found if pair[1].sites), found[0])
    return found[0] if case.signal else inside


def _ended(case: _Case) -> str:
    if not case.signal:
        return f"{_WROTE_IT}; {_HOW_LONG}"
    return f"{case.signal} in thread {case.stack.thread} of {wording.pluralize(len(case.stacks), 'thread')}"


def _headline(case: _Case, site: Site | None, others: int = 0) -> str:
    name = "" if site is None else site.op or site.kernel
    if case.signal:
        return crash_text(case.signal, f" in {name}" if name else "")
    more = f" and {wording.pluralize(others, 'other launch')}" if others else ""
    return (
        f"{name or 'the process'}{more} had not ended when the core was written: {'they' if others else 'it'} may hang"
    )


def _why_no_values(case: _Case) -> tuple[str, ...]:
    if case.state is None:
        return (_NOT_INSTRUMENTED,)
    if case.state.run_directory is None:
        return ("the package recorded nothing (level 0): the arguments of the launch are not known",)
    return (f"{case.state.run_directory} is gone: the arguments of the launch are not known",)


def _record_it(case: _Case) -> tuple[str, ...]:
    """The command after which a core tells more."""
    words = case.core.arguments
    if case.state is not None:
        return (f"AOTI_DEBUG_LEVEL=3 {words}",) if words else ()
    return () if case.package is None else (shlex.join(["aoti-debug", "build", str(case.package)]),)


# A package that recorded its launches


def _of_run(case: _Case, run: Path, options: TriageOptions, folder: Path, steps: Steps, so_far: SoFar) -> Outcome:
    """What the run of the process tells, and the memory of the launch that it ended in."""
    with steps.step("run of the process") as note:
        diagnosed = _copied(case, run, folder / triage_directory.RUNS)
        verdict = diagnosed.verdict
        launch = None if verdict is None else verdict.launch
        note.text = "no launch" if launch is None else f"{launch.id} {launch.kernel}"
    if verdict is None:
        return Outcome(_of_stack(case).finding, diagnosed.run)
    finding = finding_of(diagnosed.run, verdict, argument_sentences(verdict))
    stack, found = _guilty(case)
    ended = _ended(case) if case.signal else _HOW_LONG
    evidence, frames = (*finding.evidence, ended, found.why), crash_stacks.useful(stack)
    finding = replace(finding, evidence=evidence, stack=frames, signal=case.signal, address=stack.address)
    if not case.signal:
        finding = replace(finding, what=_headline(case, found.site))
    if launch is None:
        return Outcome(finding, diagnosed.run)
    if found.site is not None and found.site.id != launch.site.id:
        said = f"the stack is in {found.site.kernel}, wrapper line {found.site.line}: the records may lack its launch"
        finding = replace(finding, warnings=(*finding.warnings, said))
    so_far.suspicion = Suspicion(_with_address(finding, stack, launch, case.manifest), diagnosed)
    with steps.step("inputs in the core") as note:
        saved = rescue.save(diagnosed.run, core_launch.inputs_in(case.core, launch))
        note.text = saved.failure or wording.pluralize(saved.tensors, "tensor")
    diagnosed = diagnosed.with_rescued_tensors()
    launch = diagnosed.run.launch(launch.id)
    outcome = _confirmed(finding, diagnosed, launch, options, folder, steps)
    return replace(outcome, finding=_with_address(outcome.finding, stack, launch, case.manifest))


def _copied(case: _Case, run: Path, folder: Path) -> DiagnosedRun:
    """A copy of the run of the process, with its end and its stacks as the core has them.

    Raises:
        RunDirError: the run cannot be read.
    """
    open_diagnosed(run)  # rescues what its flight recorder holds
    copy = folder / run.name
    shutil.copytree(run, copy, symlinks=True, copy_function=_copy, ignore=shutil.ignore_patterns("process-*"))
    opened = run_directory.open_run(copy)
    link = copy / run_directory.PACKAGE
    package = folder.parent / session.PACKAGE
    if package.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(package.resolve())
    kind = ExitKind.FAULT if case.signal else ExitKind.TIMEOUT
    detail = f"killed by {case.signal}" if case.signal else _WROTE_IT
    run_json.write(replace(opened.info, exit=Exit(kind, detail, signal=case.signal)), copy)
    known = crash_stacks.read(copy) or crash_stacks.decode(copy)
    crash_stacks.write(copy, Backtrace(case.stacks, known.python if known is not None else ()))
    return DiagnosedRun(run_directory.open_run(copy))


def _copy(source: str, target: str) -> str:
    """Copies a file; the large ones, which nobody changes, are linked where the disk can do that."""
    if f"/{_TENSORS}/" in source:
        try:
            os.link(source, target)
        except OSError:  # on another disk
            pass
        else:
            return target
    return str(shutil.copy2(source, target))


def _with_address(finding: Finding, stack: Stack, launch: Launch, manifest: Manifest) -> Finding:
    """The finding with the argument that the address of the signal lies in, or near."""
    if stack.address is None:
        return finding
    near = core_launch.near_argument(stack.address, launch, manifest)
    if near is None:
        return replace(finding, evidence=(*finding.evidence, f"the thread accessed address {stack.address:#x}"))
    is_open = finding.where is None or finding.where.element is None
    possible = (near.possible, *finding.possible) if near.possible and is_open else finding.possible
    where = near.place if near.place.element is not None and is_open else finding.where
    return replace(finding, where=where, evidence=(*finding.evidence, near.observed), possible=possible)


def _confirmed(
    finding: Finding, diagnosed: DiagnosedRun, launch: Launch, options: TriageOptions, folder: Path, steps: Steps
) -> Outcome:
    """Replays the launch alone with the inputs out of the core, and explains what that shows."""
    run: RunDir = diagnosed.run
    changed = core_launch.may_have_changed(launch)
    if changed:
        names = wording.join_truncated(changed, 3)
        said = f"{names}: as in the core; the launch may have changed it before"
        finding = replace(finding, warnings=(*finding.warnings, said))
    if not (run.is_made_here or options.user_code.trusted):
        said = "the launch was not replayed: its package was not made on this account (--trust)"
        return Outcome(replace(finding, warnings=(*finding.warnings, said)), run)
    runs = TriageRuns(folder / session.PACKAGE, folder / triage_directory.RUNS, options, steps)
    first = RunResult(diagnosed, 0.0, "")
    investigation = Investigation(options, runs, steps, folder / triage_directory.REPRO, first)
    check = faults.FAULT_CHECK if finding.kind == FAULT else faults.HANG_CHECK
    try:
        return check.confirm(investigation, Suspicion(finding, diagnosed))
    except AotiDebugError as error:
        said = f"the launch was not replayed: {wording.first_line(str(error))}"
        return Outcome(replace(finding, warnings=(*finding.warnings, said)), run)
