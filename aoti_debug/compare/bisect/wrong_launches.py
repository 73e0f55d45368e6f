"""The launches that make a package wrong."""

from __future__ import annotations

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.diff.difference import TensorDifference
from aoti_debug.compare.diff.pairing.pair import PairedBy
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.what_if.recovered_outputs import Outputs
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch


@dataclass(frozen=True)
class SuspectLaunch:
    """A launch that writes other results than the good package does, from the same inputs.

    Attributes:
        tensors: those that differ from its counterpart's; () if it has none.
        verdict: of the comparison with the program; None if it is not comparable.
        is_culprit: True if rounding does not explain the difference.
    """

    launch: Launch
    tensors: tuple[TensorDifference, ...]
    verdict: LaunchVerdict | None
    is_culprit: bool


@dataclass(frozen=True)
class Bisection:
    """The launches that make a package wrong.

    Attributes:
        good, bad: runs of both as they are.
        by: how their launches are paired.
        paired: the number of pairs.
        same: of these, the ones with the same results from the same inputs.
        suspects: launches of the bad package with other results, in order.
        between: launches one of which is to blame, where replacing the suspects' results was not enough.
        outputs: their errors against the good package's, as the bad one is, and with the culprits' results replaced.
        runs: the number of runs that it took.
    """

    good: RunDir
    bad: RunDir
    by: PairedBy
    paired: int
    same: int
    suspects: tuple[SuspectLaunch, ...]
    between: tuple[Launch, ...]
    outputs: Outputs
    runs: int
    notes: tuple[str, ...]

    @property
    def culprits(self) -> tuple[SuspectLaunch, ...]:
        """The suspects whose difference rounding does not explain."""
        return tuple(suspect for suspect in self.suspects if suspect.is_culprit)

    @property
    def is_clean(self) -> bool:
        """True if nothing but rounding differs."""
        return not self.culprits and not self.between and all(error.is_right for error in self.outputs.before)
