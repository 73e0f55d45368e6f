"""Ranks that were outside of the package when they were ended."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from aoti_debug.base.native import crash_stacks
from aoti_debug.base.native.crash_stacks import Backtrace, Stack
from aoti_debug.base.native.frames import StackFrame
from aoti_debug.runs.ranks.ranks_analysis import analyse
from aoti_debug.runs.ranks.ranks_run import Outside, RanksRun, open_ranks
from aoti_debug.runs.ranks.text import ranks_lines
from tests.runs.ranks.ranked import Rank, opened, terminated

WAITS = ("", "pthread_cond_wait", "c10d::Work::wait(long)", "_PyEval_EvalFrame")
SLEEPS = ("clock_nanosleep", "pysleep", "_PyEval_EvalFrame")
LEAVES = ("subtract_refs", "Py_FinalizeEx")


def with_stacks(run: RanksRun, stacks: dict[int, tuple[str, ...]]) -> RanksRun:
    """The run with symbolized stacks of these ranks."""
    for number, functions in stacks.items():
        frames = tuple(StackFrame(function) for function in functions)
        data = {"format": 1, **asdict(Backtrace((Stack(1, "SIGTERM", None, frames),)))}
        (run.path / f"rank{number}" / crash_stacks.NAME).write_text(json.dumps(data))
    return open_ranks(run.path)


@pytest.mark.parametrize(
    ("functions", "place"),
    [
        (WAITS, Outside("c10d::Work::wait", True, False)),
        (SLEEPS, Outside("clock_nanosleep", False, False)),
        (LEAVES, Outside("subtract_refs", False, True)),
    ],
)
def test_places(tmp_path: Path, functions: tuple[str, ...], place: Outside) -> None:
    run = with_stacks(opened(tmp_path, terminated(None), Rank()), {0: functions})
    assert run.ranks[0].progress.outside == place


def test_a_rank_that_sleeps_while_the_others_wait(tmp_path: Path) -> None:
    """gloo gave up in rank 0, whose process ended in order, before torchrun ended the others."""
    run = opened(tmp_path, Rank(calls=1), terminated(None), terminated(None))
    analysis = analyse(with_stacks(run, {1: SLEEPS, 2: WAITS}))
    assert analysis.failure is not None
    assert (analysis.failure.rank.number, analysis.failure.what) == (1, "it hangs outside of the package")
    assert "rank 2 waits outside of the package, in c10d::Work::wait" in ranks_lines(analysis, 200)


def test_a_rank_that_threw_while_the_others_wait(tmp_path: Path) -> None:
    run = opened(tmp_path, Rank(calls=1), terminated(None), terminated(None))
    analysis = analyse(with_stacks(run, {1: LEAVES, 2: WAITS}))
    assert analysis.failure is not None
    assert (analysis.failure.rank.number, analysis.failure.what) == (0, "it ended before the others")
