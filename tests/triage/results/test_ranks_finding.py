"""The finding of a run of several ranks."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.runs.diagnosis.findings import CLEAN, FAULT, HANG, Finding
from aoti_debug.runs.ranks.ranks_analysis import analyse
from aoti_debug.triage.results.finding_kinds import CONTRACT
from aoti_debug.triage.results.ranks_finding import ranks_finding
from tests.runs.ranks.ranked import REDUCE, WAIT, Rank, killed, opened, terminated


def found(base: Path, *ranks: Rank | None) -> Finding:
    return ranks_finding(analyse(opened(base, *ranks)))


def test_the_rank_that_failed_first(tmp_path: Path) -> None:
    finding = found(tmp_path, terminated(2), killed(0), terminated(2))
    assert (finding.kind, finding.what) == (FAULT, "rank 1 failed first: it disappeared, as by SIGKILL")
    assert finding.where is not None
    assert (finding.where.launch, finding.where.kernel) == ("1.0", "mm")
    assert finding.evidence[:2] == (
        "it is the only rank that failed by itself; 2 ranks ended by SIGTERM afterwards",
        f"ranks 0 and 2 wait in 1.2 {WAIT} for rank 1",
    )
    assert finding.next[0].startswith("aoti-debug show ")
    assert finding.next[0].endswith("/rank1")


def test_a_rank_that_hangs(tmp_path: Path) -> None:
    finding = found(tmp_path, terminated(2), terminated(0))
    assert (finding.kind, finding.what) == (HANG, "rank 1 failed first: it hangs")
    assert finding.where is not None
    assert finding.where.launch == "1.0"


def test_a_rank_without_a_run(tmp_path: Path) -> None:
    finding = found(tmp_path, terminated(2), None)
    assert finding.kind is FAULT
    assert finding.what.startswith("rank 1 failed first, probably: ")
    assert finding.where is None


def test_tensors_that_should_agree(tmp_path: Path) -> None:
    finding = found(tmp_path, Rank(), Rank(), Rank(hashes=(1, 9)))
    assert finding.kind is CONTRACT
    assert finding.what.startswith("DIFFERS rank 2 from ranks 0 and 1: result of a collective")
    assert REDUCE in finding.what or WAIT in finding.what


def test_ranks_of_which_none_has_failed(tmp_path: Path) -> None:
    finding = found(tmp_path, Rank(), Rank())
    assert finding.kind is CLEAN
    assert finding.what.endswith("2 ranks, 2 finished")
