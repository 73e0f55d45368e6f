"""The builds of a bisection of settings with their results, on the disk: resumable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.bisect.delta_debugging import SetOutcome
from aoti_debug.compare.bisect.search_trials import SearchState, SearchTrials
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


@dataclass(frozen=True, kw_only=True)
class _State(SearchState):
    configs: Mapping[str, Any] = field(default_factory=dict)
    trials: tuple[BuildTrial, ...] = ()


class BuildTrials(SearchTrials[_State, BuildTrial]):
    """The trials of one bisection; its key identifies the program, its settings and inputs."""

    def __init__(self, folder: Path, key: str, configs: Mapping[str, Any]) -> None:
        super().__init__(folder / NAME, _State(format=FORMAT, key=key, configs=configs))

    def find(self, changes: Iterable[str]) -> BuildTrial | None:
        """The finished trial of changes, in any order."""
        wanted = sorted(changes)
        return next((trial for trial in self.all if sorted(trial.changes) == wanted), None)
