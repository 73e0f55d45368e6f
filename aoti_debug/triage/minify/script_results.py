"""The scripts that a minimisation has run, with results and verdicts of triages, on the disk: resumable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.compare.bisect.delta_debugging import interrupted

FORMAT = 1
NAME = "minify.json"


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


@dataclass(frozen=True)
class _State:
    format: int
    key: str
    known: Known | None = None
    trials: tuple[ScriptTrial, ...] = ()
    verdicts: Mapping[str, ScriptVerdict] = field(default_factory=dict)
    is_done: bool = False


class ScriptTrials:
    """The trials of one minimisation.

    Args:
        key: what identifies it; a file of another key or of a finished minimisation begins anew.

    Attributes:
        earlier: how many of the trials an interrupted minimisation had made.

    Raises:
        RunDirError: the file is damaged.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._path = folder / NAME
        self._state = interrupted(self._path, _State(FORMAT, key), FORMAT)
        self.earlier = len(self._state.trials)

    @property
    def all(self) -> tuple[ScriptTrial, ...]:
        """The finished trials, in order."""
        return self._state.trials

    @property
    def known(self) -> Known | None:
        """The result of the triage; None if there was none yet."""
        return self._state.known

    def find(self, script: str) -> ScriptTrial | None:
        """The finished trial of a script, by the hash of its text."""
        return next((trial for trial in self._state.trials if trial.script == script), None)

    def know(self, known: Known) -> None:
        """Keeps the result of the triage."""
        self._write(replace(self._state, known=known))

    def add(self, trial: ScriptTrial) -> None:
        """Adds a trial, and writes it down."""
        self._write(replace(self._state, trials=(*self._state.trials, trial)))

    def verdict(self, script: str) -> ScriptVerdict | None:
        """The verdict of a triage of a script, by the hash of its text; None if there was none."""
        return self._state.verdicts.get(script)

    def judge(self, script: str, verdict: ScriptVerdict) -> None:
        """Keeps the verdict of a script."""
        self._write(replace(self._state, verdicts={**self._state.verdicts, script: verdict}))

    def finish(self) -> None:
        """The next minimisation begins anew."""
        self._write(replace(self._state, is_done=True))

    def _write(self, state: _State) -> None:
        self._state = state
        atomic_write.write(self._path, json_data.to_text(state))
