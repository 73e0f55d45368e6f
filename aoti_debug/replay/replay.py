"""Repeats a run with results of launches replaced, in a directory of its own."""

from __future__ import annotations

from aoti_debug.machine import python_process
from aoti_debug.machine.steps import StepListener, Steps
from aoti_debug.replay import substitution
from aoti_debug.replay.options import ReplayOptions
from aoti_debug.replay.session import ReplaySession, options_of, replay_folder
from aoti_debug.replay.what_if import WhatIf, what_if
from aoti_debug.run.preloaded import PRELOADED
from aoti_debug.rundir import run_directory


def replay(options: ReplayOptions, listener: StepListener | None = None) -> WhatIf:
    """Repeats a run with results of launches replaced.

    Raises:
        UsageError: an option is wrong, a result cannot be replaced, or the run is not trusted.
        ArtifactError: the package cannot replace results, or holds no program.
        TargetError: the model or its program cannot be run.
        RunDirError: the run cannot be read or repeated.
    """
    substitutions = [substitution.parse(text) for text in options.substitutions]
    run = run_directory.open_run(options.run)
    with replay_folder(options.out) as folder, python_process.forking_from(PRELOADED, options.imports) as server:
        server.preload()
        session = ReplaySession(options_of(run, folder, options), folder, Steps(listener))
        return what_if(session, run, substitutions)
