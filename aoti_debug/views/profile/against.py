"""Measures a model and an older one in turn, and compares their launches."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.machine.progress.steps import Steps
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.profile.changes import Changes, Round, find_changes
from aoti_debug.views.profile.options import WARM_UP
from aoti_debug.views.profile.recorded import run_to_the_end
from aoti_debug.views.profile.run_calls import calls_of
from aoti_debug.views.profile.site_groups import site_groups

ROUNDS = 10  # processes of each model


def compare_with(old_model: Path, old: RunOptions, new: RunOptions, steps: Steps) -> Changes:
    """Runs both models in turn, each in ROUNDS processes, and compares their launches.

    Args:
        old_model: the file that was named.
        old, new: the options of their runs, each of which is made ROUNDS times.

    Raises:
        UsageError: the models take other inputs, or one does not end well.
        ArtifactError, TargetError, RunDirError: one of them cannot be run, or its run cannot be read.
    """
    runs: list[tuple[RunDir, RunDir]] = []
    rounds: list[tuple[Round, Round]] = []
    with steps.step("run both in turn") as note:
        for number in range(ROUNDS):
            pair = _in_turn(old, new, number)
            rounds.append((calls_of(pair[0], WARM_UP).measured, calls_of(pair[1], WARM_UP).measured))
            runs = runs or [pair]
            steps.advance(number + 1, ROUNDS)
        calls = rounds[0][0]
        one = "call" if calls[0].replay_of is None else "replay"
        note.text = f"{ROUNDS} times {wording.count(len(calls), one)} of each"
    groups, notes = site_groups(*runs[0])
    return find_changes(old_model, groups, rounds, notes)


def _in_turn(old: RunOptions, new: RunOptions, number: int) -> tuple[RunDir, RunDir]:
    """Runs both; neither is the first in every round."""
    if number % 2 == 0:
        return run_to_the_end(old), run_to_the_end(new)
    later = run_to_the_end(new)
    return run_to_the_end(old), later
