"""The builds of a bisection of settings with their results, on the disk: resumable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.compare.bisect.delta_debugging import SetOutcome, interrupted
from aoti_debug.instrument.frontend.protocol.messages import Applied

FORMAT = 2
NAME = "bisect.json"


class BuildFault(str, Enum):
    """The kind of fault that a build has."""

    NONE = "nothing"
    LAUNCH = "a launch, from its own inputs"
    STATE = "a state of the model"
    OUTPUT = "only what the model returns: what comes before the kernels"
    END = "the run did not end well"
    BUILD = "a part of the build fails"


_ENDINGS = (BuildFault.END, BuildFault.BUILD)  # of what ends in one of these, nothing is known that comes after it


@dataclass(frozen=True, kw_only=True)
class BuildTrial:
    """A build of the program with changes, and what was found.

    Attributes:
        name: the changes, "--inductor-config cpp.simdlen=1"; "baseline".
        changes: the line to paste for each.
        finding: what is wrong.
        wrong: the finding in words, "0.7 cpp_fused_relu_3 is wrong"; "" if there is none.
        failure: why it was not built or run; "" if it was.
        applied: of the baseline, the parts of Inductor that were applied.
        suspects: likewise, the operators that may be to blame for what is wrong.
        device: "cpu" or "cuda".
        seconds: the time that it took.
    """

    name: str
    changes: tuple[str, ...] = ()
    finding: BuildFault = BuildFault.NONE
    wrong: str = ""
    failure: str = ""
    applied: Applied = field(default_factory=Applied)
    suspects: tuple[str, ...] = ()
    device: str = "cpu"
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """True if it was built and run without a finding."""
        return self.finding is BuildFault.NONE and not self.failure

    def outcome(self, baseline: BuildTrial) -> SetOutcome:
        """The effect of the changes on the finding of the baseline.

        A build or a run that ends badly tells nothing about wrong numbers, nor the other way round.
        """
        if self.is_right:
            return SetOutcome.YES
        is_other = self.finding is not baseline.finding and bool(
            {self.finding, baseline.finding}.intersection(_ENDINGS)
        )
        return SetOutcome.UNKNOWN if self.failure or is_other else SetOutcome.NO


@dataclass(frozen=True)
class _State:
    format: int
    key: str
    configs: Mapping[str, Any] = field(default_factory=dict)
    trials: tuple[BuildTrial, ...] = ()
    is_done: bool = False


class BuildTrials:
    """The trials of one bisection.

    Args:
        key: what identifies it: the program, its settings and inputs; a file of another key or of a finished bisection
            begins anew.

    Raises:
        RunDirError: the file is damaged.
    """

    def __init__(self, folder: Path, key: str, configs: Mapping[str, Any]) -> None:
        self._path = folder / NAME
        self._state = interrupted(self._path, _State(FORMAT, key, configs), FORMAT)
        self.known = len(self._state.trials)

    @property
    def all(self) -> tuple[BuildTrial, ...]:
        """The finished trials, in order."""
        return self._state.trials

    def find(self, changes: Iterable[str]) -> BuildTrial | None:
        """The finished trial of changes, in any order."""
        wanted = sorted(changes)
        return next((trial for trial in self._state.trials if sorted(trial.changes) == wanted), None)

    def add(self, trial: BuildTrial) -> None:
        """Adds a trial, and writes it down."""
        self._write(replace(self._state, trials=(*self._state.trials, trial)))

    def finish(self) -> None:
        """The next bisection begins anew."""
        self._write(replace(self._state, is_done=True))

    def _write(self, state: _State) -> None:
        self._state = state
        atomic_write.write(self._path, json_data.to_text(state))
