"""The scripts of a minimisation: each attempt's is run once, and its result kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from aoti_debug.base.machine.progress.steps import Steps
from aoti_debug.compare.bisect.delta_debugging import SetOutcome
from aoti_debug.triage.minify.scripts.attempt import Attempt, AttemptScript, script_of
from aoti_debug.triage.minify.scripts.run_script import is_like
from aoti_debug.triage.minify.scripts.script_results import ScriptTrial, ScriptTrials
from aoti_debug.triage.minify.scripts.script_text import ScriptSetup

FOLDER = "trial"  # of the script that runs
Run = Callable[[Path, ScriptTrial, float], ScriptTrial]


class Scripts:
    """Runs the scripts of attempts.

    Args:
        folder: of the minimisation.
        run: runs a script, and adds to its trial what that showed.
        most: how many scripts may run, those of `trials` among them.

    Attributes:
        title: one line, the first of each script.
        is_spent: True if an attempt was not tried because no more scripts may run.
    """

    def __init__(
        self, folder: Path, trials: ScriptTrials, run: Run, setting: ScriptSetup, most: int, steps: Steps
    ) -> None:
        self._folder = folder
        self._trials = trials
        self._run = run
        self._setting = setting
        self._most = most
        self._steps = steps
        self.title = ""
        self.is_spent = False

    def script(self, attempt: Attempt) -> AttemptScript | None:
        """The script of an attempt; None where it would show nothing, or cannot be written."""
        return script_of(attempt, self.title, self._setting)

    def tried(self, attempt: Attempt) -> ScriptTrial:
        """The trial of an attempt: a finished one, or a new one."""
        script = self.script(attempt)
        if script is None:
            return ScriptTrial("", attempt.name, failure="it cannot show the finding")
        known = self._trials.find(script.hash)
        if known is not None:
            return known
        if len(self._trials.all) >= self._most:
            self.is_spent = True
            return ScriptTrial("", attempt.name, failure="no more scripts may run")
        with self._steps.step(attempt.name) as note:
            path = script.write(self._folder / FOLDER)
            trial = self._run(path, ScriptTrial(script.hash, attempt.name, runs=attempt.runs), self._setting.seconds)
            note.text = result_text(trial)
        self._trials.add(trial)
        return trial

    def outcome(self, attempt: Attempt, first: str) -> SetOutcome:
        """The outcome of an attempt: a part of one that does not show the finding may, as what follows may hide it.

        Args:
            first: the finding as another script said it.
        """
        trial = self.tried(attempt)
        return SetOutcome.YES if trial.shown and is_like(trial.observed, first) else SetOutcome.UNKNOWN


def result_text(trial: ScriptTrial) -> str:
    """The result of a script in words: "relu: Tensor-likes are not close!", "as expected"."""
    if trial.failure:
        return f"not known: {trial.failure}"
    return trial.observed if trial.shown else "as expected"
