"""Repeats a run with results of launches replaced, or up to a launch, in a directory of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.errors import TargetError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.compare.what_if import replacements
from aoti_debug.compare.what_if.replacements import Substitution, recorded_results
from aoti_debug.compare.what_if.substituted_run import (
    Instruction,
    ReplayOptions,
    ReplaySession,
    Stop,
    Wait,
    options_of,
    recorded,
)
from aoti_debug.compare.what_if.what_if import WhatIf, plan, what_if
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind


def replay(
    options: ReplayOptions, listener: StepListener | None = None, wait: Callable[[int], None] | None = None
) -> WhatIf | Reached:
    """Repeats a run with results of launches replaced, or up to a launch.

    Args:
        wait: called with the id of the process while it stands before the launch at which it stops.

    Raises:
        UsageError: an option is wrong, a result cannot be replaced, or the run is not trusted.
        ArtifactError: the package cannot replace results, or holds no program.
        TargetError: the model or its program cannot be run.
        RunDirError: the run cannot be read or repeated.
    """
    substitutions = [replacements.parse(text) for text in options.substitutions]
    run = run_directory.open_run(options.run)
    if not (substitutions or options.begin or options.to):
        raise UsageError("there is nothing to do otherwise", hint="--substitute 0.36=eager replaces a result")
    for id_ in filter(None, (options.to, options.begin)):
        run.launch(id_)
    forking = python_process.forking_from(PRELOADED, options.user_code.imports)
    with stamped_directories.new_folder(options.out) as folder, forking as server:
        server.preload()
        session = ReplaySession(options_of(run, folder, options), folder, Steps(listener))
        if not options.to:
            return what_if(session, run, substitutions, options.begin)
        launch = run.launch(options.to)
        return stop_before(session, _instructions(session, run, substitutions, options.begin), launch, wait)


def _instructions(
    session: ReplaySession, run: RunDir, substitutions: Sequence[Substitution], begin: str
) -> tuple[Instruction, ...]:
    """What is done otherwise; the program is evaluated only if its results are needed."""
    if substitutions:
        return plan(session, run, substitutions, begin).instructions
    return tuple(recorded_results(recorded(session, run), run.launch(begin))) if begin else ()


@dataclass(frozen=True)
class Reached:
    """A run that has stopped before a launch.

    Attributes:
        run: it recorded the arguments of the launch.
        seconds: from the start of the process to its end.
        refused: the instructions that were not followed.
    """

    run: RunDir
    launch: Launch
    seconds: float
    refused: tuple[str, ...]


def stop_before(
    session: ReplaySession,
    instructions: Sequence[Instruction],
    launch: Launch,
    wait: Callable[[int], None] | None = None,
) -> Reached:
    """Runs the model up to a launch.

    Args:
        wait: called with the id of the process while it stands before the launch; it goes no further afterwards.

    Raises:
        TargetError: it did not come so far.
    """
    file = session.folder / "wait"
    waits: list[Instruction] = []
    if wait is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        waits.append(Wait(launch.id, file))
    session.options = replace(session.options, launch=launch.id)
    found = session.again(
        f"to {launch.id}",
        (*instructions, *waits, Stop(launch.id)),
        level=1,
        observer=Observer() if wait is None else _WaitObserver(file, wait),
    )
    if found.run.state is not ExitKind.STOPPED:
        raise TargetError(
            f"{launch.id} was not reached: {found.run.info.exit.detail or found.run.state.value}",
            hint=f"aoti-debug show --run {found.run.path}",
        )
    return Reached(found.run, found.run.launch(launch.id), found.seconds, found.refused)


class _WaitObserver(Observer):
    """Notices that the process waits, and lets it go on."""

    def __init__(self, file: Path, wait: Callable[[int], None]) -> None:
        self._file = file
        self._wait = wait

    def tick(self) -> None:
        waiting = self._file.with_name(f"{self._file.name}.waiting")
        if not self._file.exists() or not waiting.exists():
            return
        try:
            self._wait(int(waiting.read_text()))
        finally:
            self._file.unlink()
