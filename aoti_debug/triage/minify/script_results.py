"""The scripts that a minimisation runs, each in a process of its own, and their results on the disk: resumable."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.processes import child_process, tied_process
from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare.bisect.delta_debugging import SearchState, SearchTrials, SetOutcome
from aoti_debug.triage.minify.attempt import Attempt, AttemptScript, script_of
from aoti_debug.triage.minify.script_text import OBSERVED, ScriptSetup

FORMAT = 1
NAME = "minify.json"
COMPILING = 1800.0  # seconds that compiling a part may take
_LINE = re.compile(re.escape(OBSERVED) + r"(?P<what>.*?)(, in (?P<shown>\d+) of \d+ runs)?; expected: .*")
FOLDER = "trial"  # of the script that runs


class TriageAnswer(str, Enum):
    """The answer of a triage."""

    YES = "confirmed"
    NO = "not confirmed"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class ScriptVerdict:
    """The verdict of a triage of a script's program.

    Attributes:
        text: the finding, "FAULT SIGSEGV"; the reason why there is none where the answer is not known.
    """

    confirmation: TriageAnswer
    text: str

    @property
    def line(self) -> str:
        """The text, after the answer where that is not the hoped for."""
        prefix = {TriageAnswer.NO: "NOT CONFIRMED: ", TriageAnswer.UNKNOWN: "not known: "}
        return f"{prefix.get(self.confirmation, '')}{self.text}"


@dataclass(frozen=True)
class TriagedScript:
    """A script that showed the finding, as it was triaged.

    Attributes:
        name: what it is made of: "2 of 13 calls of launch 0.3, inputs random".
    """

    name: str
    verdict: ScriptVerdict


@dataclass(frozen=True)
class ScriptTrial:
    """A script that was run.

    Attributes:
        script: the hash of its text and its files.
        name: what it is made of: "3 of 12 nodes of launch 0.3, random inputs".
        observed: the finding as the script says it, "relu: Tensor-likes are not close!"; "" if it does not show it.
        shown, runs: how often it showed itself, in so many runs.
        failure: why that is not known: the script did not come so far; "" if it did.
        seconds: the time that it took.
    """

    script: str
    name: str
    observed: str = ""
    shown: int = 0
    runs: int = 1
    failure: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Known:
    """The result of a triage.

    Attributes:
        triage: its directory.
        finding: as JSON (docs/triage.schema.json); of kind "wrong_value" if only outputs are wrong.
    """

    triage: str
    finding: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class _State(SearchState):
    known: Known | None = None
    trials: tuple[ScriptTrial, ...] = ()
    verdicts: Mapping[str, ScriptVerdict] = field(default_factory=dict)


class ScriptTrials(SearchTrials[_State, ScriptTrial]):
    """The trials of one minimisation."""

    def __init__(self, folder: Path, key: str) -> None:
        super().__init__(folder / NAME, _State(format=FORMAT, key=key))

    @property
    def known(self) -> Known | None:
        """The result of the triage; None if there was none yet."""
        return self._state.known

    def find(self, script: str) -> ScriptTrial | None:
        """The finished trial of a script, by the hash of its text."""
        return next((trial for trial in self.all if trial.script == script), None)

    def know(self, known: Known) -> None:
        """Keeps the result of the triage."""
        self._keep(known=known)

    def verdict(self, script: str) -> ScriptVerdict | None:
        """The verdict of a triage of a script, by the hash of its text; None if there was none."""
        return self._state.verdicts.get(script)

    def judge(self, script: str, verdict: ScriptVerdict) -> None:
        """Keeps the verdict of a script."""
        self._keep(verdicts={**self._state.verdicts, script: verdict})


Run = Callable[[Path, ScriptTrial, float], ScriptTrial]


def run_script(path: Path, trial: ScriptTrial, stall: float) -> ScriptTrial:
    """The trial with what running its script shows.

    Args:
        stall: seconds that one of its runs may take.
    """
    most = COMPILING + (trial.runs + 1) * stall  # eager runs it once more
    command, variables = [sys.executable, str(path)], {"TORCHINDUCTOR_COMPILE_THREADS": "1", **os.environ}
    began = time.monotonic()
    try:
        done = tied_process.run(command, timeout=most, environment=variables)
    except subprocess.TimeoutExpired:
        return replace(trial, failure=f"no end within {wording.duration(most)}", seconds=most)
    seconds = time.monotonic() - began
    if done.code == 0:
        return replace(trial, seconds=seconds)
    last = done.stderr.strip().rpartition("\n")[2]
    match = _LINE.fullmatch(last)
    if match is None:
        return replace(
            trial, failure=wording.first_line(last) or child_process.describe_exit(done.code), seconds=seconds
        )
    return replace(trial, observed=match["what"], shown=int(match["shown"] or 1), seconds=seconds)


def is_like(observed: str, first: str) -> bool:
    """True if two observations are of the same kind: both a signal, the same exception, both numbers."""
    return _kind(observed) == _kind(first)


def _kind(observed: str) -> str:
    if re.fullmatch(r"SIG[A-Z]+", observed):
        return "signal"
    exception = re.match(r"[\w.]*(Error|Exception)\b", observed)
    if exception is not None:
        return exception[0]
    return "no end" if observed.startswith("no end within") else ""


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
