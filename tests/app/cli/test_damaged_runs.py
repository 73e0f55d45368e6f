"""What commands say of a run whose journal is cut or damaged, at every byte of a block."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base import abi
from tests.damaged_runs import Change, DamagedRun, Point, complete_run

STEP = 64  # of the commands that take longer


@pytest.fixture
def damaged(tmp_path: Path) -> DamagedRun:
    return DamagedRun(complete_run(tmp_path / "whole"), tmp_path)


@pytest.mark.parametrize("change", list(Change))
def test_every_byte_of_a_block(damaged: DamagedRun, change: Change) -> None:
    used = len(damaged.files["journal.bin"].rstrip(b"\0"))
    assert used > abi.JOURNAL_HEADER.size + 512
    for at in range(1, used):
        commands = ("json", "show", "launch", "report") if at % STEP == 0 else ("json",)
        assert damaged.problems(Point("journal.bin", at, change), commands) == []


def test_random_bytes_of_a_whole_run(damaged: DamagedRun) -> None:
    points = damaged.points(seed=0)
    assert [problem for _ in range(40) for problem in damaged.problems(next(points))] == []


def test_a_wrong_sentence_is_noticed(damaged: DamagedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aoti_debug.runs.rundir.formats.journal.Journal.is_incomplete", False)
    used = len(damaged.files["journal.bin"].rstrip(b"\0"))
    found = [p for at in range(128, used, 8) for p in damaged.problems(Point("journal.bin", at, Change.CUT), ("json",))]
    assert any("it blames 0.0 for what 0.1 has done" in problem for problem in found)
