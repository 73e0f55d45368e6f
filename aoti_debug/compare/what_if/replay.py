"""Repeats a run with results of launches replaced, or up to a launch, in a directory of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.fork_server import python_process
from aoti_debug.base.machine.progress.steps import StepListener, Steps
from aoti_debug.compare.what_if import substitution
from aoti_debug.compare.what_if.instructions import Instruction
from aoti_debug.compare.what_if.options import ReplayOptions
from aoti_debug.compare.what_if.recorded_results import recorded_results
from aoti_debug.compare.what_if.replay_session import ReplaySession, options_of, recorded, replay_folder
from aoti_debug.compare.what_if.stop_before_launch import Reached, stop_before
from aoti_debug.compare.what_if.substitution import Substitution
from aoti_debug.compare.what_if.what_if import WhatIf, plan, what_if
from aoti_debug.runs.run.preloaded_modules import PRELOADED
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_directory import RunDir


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
    substitutions = [substitution.parse(text) for text in options.substitutions]
    run = run_directory.open_run(options.run)
    if not (substitutions or options.begin or options.to):
        raise UsageError("there is nothing to do otherwise", hint="--substitute 0.36=eager replaces a result")
    for id_ in filter(None, (options.to, options.begin)):
        run.launch(id_)
    with replay_folder(options.out) as folder, python_process.forking_from(PRELOADED, options.imports) as server:
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
