from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.compare.diff.diff_runs import diff_runs
from aoti_debug.compare.diff.difference import Diff
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.report import diff_page
from aoti_debug.views.report.diff_page import difference_spread
from tests.triage.recorder import Recorder

X = torch.arange(12).reshape(3, 4)


def record(base: Path, result: torch.Tensor) -> RunDir:
    recorder = Recorder(base, inputs=("x",))
    recorder.journal.call_begin()
    recorder.launch("cpp_mul", {"x": X}, {"buf0": result})
    return recorder.run()


def changed(folder: Path, base: torch.Tensor) -> Diff:
    """Two runs whose result differs in rows 1 and 2 of column 3."""
    other = base.clone()
    other[1, 3] += 5
    other[2, 3] += 1
    return diff_runs(record(folder / "a", base), record(folder / "b", other))


def test_integers_by_their_difference(tmp_path: Path) -> None:
    found = changed(tmp_path, X)
    spread = difference_spread(found.launches[0].tensors[0], found.a, found.b)
    assert (spread.ulp, spread.misplaced, spread.rows, spread.columns) == ((), 0, 3, 4)
    assert tuple(spread.map) == (0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1)
    assert spread.ranges == (((1, 2),), ((3, 3),))


def test_floats_by_ulp(tmp_path: Path) -> None:
    found = changed(tmp_path, X.float() + 2**23)  # neighbouring numbers are 1 apart
    spread = difference_spread(found.launches[0].tensors[0], found.a, found.b)
    assert spread.ulp == (10, 0, 0, 1, 0, 0, 1)
    assert spread.map[7] == 5


def test_a_large_tensor_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff_page, "MAX_ELEMENTS", 11)
    found = changed(tmp_path, X)
    with pytest.raises(ValueError, match="it has more than 11 elements"):
        difference_spread(found.launches[0].tensors[0], found.a, found.b)
