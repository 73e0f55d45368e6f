"""All that can be said of a run of ranks beyond each rank alone."""

from __future__ import annotations

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.ranks.agreement import Agreement, Expectation, agreement
from aoti_debug.runs.ranks.clocks import Clocks, clocks_of
from aoti_debug.runs.ranks.diverging_launches import Parting, partings
from aoti_debug.runs.ranks.first_failure import RankFailure, first_failure
from aoti_debug.runs.ranks.ranks_run import RankRun, RanksRun
from aoti_debug.runs.ranks.waiting import Waiting, waiting


@dataclass(frozen=True)
class RanksAnalysis:
    """A run of ranks with its analysis.

    Attributes:
        failure: the rank that failed first; None if none has.
        waits: the ranks that waited within a collective.
        partings: ranks that launched something else than most others.
        agreement: of the tensors that should be equal on all ranks.
    """

    run: RanksRun
    clocks: Clocks
    failure: RankFailure | None
    waits: tuple[Waiting, ...]
    partings: tuple[Parting, ...]
    agreement: Agreement

    @property
    def has_finding(self) -> bool:
        """True if a rank failed, or tensors that should agree do not."""
        return self.failure is not None or bool(self.agreement.disagreements)


def analyse(run: RanksRun, expected: Expectation | None = None) -> RanksAnalysis:
    """Analyses a run of ranks.

    Args:
        expected: the tensors that should agree; None for those that their names and the program suggest.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    ranks = run.recorded
    clocks = clocks_of(ranks)
    return RanksAnalysis(
        run,
        clocks,
        first_failure(run.ranks, clocks),
        waiting(run.ranks),
        partings(ranks),
        agreement(ranks, expected or Expectation()),
    )


def representative(run: RanksRun) -> RankRun:
    """The rank that stands for a run of ranks where only one can be shown: the first that failed, or the first one.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    return shown_rank(run, first_failure(run.ranks, clocks_of(run.recorded)))


def shown_rank(run: RanksRun, failure: RankFailure | None) -> RankRun:
    """The rank that failed first, or the first one if none has, or it left no run."""
    return run.recorded[0] if failure is None or failure.rank.diagnosed is None else failure.rank
