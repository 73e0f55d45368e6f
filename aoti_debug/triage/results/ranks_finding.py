"""The finding of a run of several ranks: the one that failed first, and those that wait for it."""

from __future__ import annotations

import shlex

from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.diagnosis.findings import CLEAN, FAULT, HANG, Finding, place_of
from aoti_debug.runs.diagnosis.verdict_text import finding_of
from aoti_debug.runs.ranks import text
from aoti_debug.runs.ranks.first_failure import RankFailure
from aoti_debug.runs.ranks.ranks_analysis import RanksAnalysis, shown_rank
from aoti_debug.runs.ranks.ranks_run import End
from aoti_debug.runs.show.verdict import argument_sentences
from aoti_debug.triage.results.finding_kinds import CONTRACT

_HANGING = frozenset({End.STALLED, End.TERMINATED, End.RUNNING})


def ranks_finding(analysis: RanksAnalysis) -> Finding:
    """The finding of a run of ranks; of kind CLEAN if no rank failed and the tensors that should agree do.

    Its place is the launch in which the first rank failed; evidence is why it is that rank, what its own run shows, and
    which ranks wait. Nothing is run again.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    rank = shown_rank(analysis.run, analysis.failure)
    parted, differing = text.parting_lines(analysis), text.disagreement_lines(analysis.agreement)
    show = shlex.join(["aoti-debug", "show", suggested_commands.word_of(rank.path)])
    if analysis.failure is not None:
        return _failed(analysis, analysis.failure, (show,), (*parted, *differing))
    waits = text.wait_lines(analysis)
    if differing:
        return Finding(CONTRACT, differing[0], evidence=(*differing[1:], *parted), next=(show,), warnings=tuple(waits))
    return Finding(CLEAN, text.title(analysis), next=(show,), warnings=(*waits, *parted))


def _failed(
    analysis: RanksAnalysis, failure: RankFailure, commands: tuple[str, ...], warnings: tuple[str, ...]
) -> Finding:
    rank, launch = failure.rank, failure.launch
    own = None
    if rank.diagnosed is not None and rank.diagnosed.verdict is not None:
        verdict = rank.diagnosed.verdict
        own = finding_of(rank.diagnosed.run, verdict, argument_sentences(verdict))
    return Finding(
        HANG if rank.progress.end in _HANGING else FAULT,
        text.failure_text(failure).rstrip(","),
        None if launch is None else place_of(launch),
        evidence=(failure.why, *text.wait_lines(analysis), *(() if own is None else own.evidence)),
        next=tuple(dict.fromkeys((*commands, *(() if own is None else own.next)))),
        warnings=warnings,
    )
