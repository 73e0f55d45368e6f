from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.compare.diff.diff_runs import diff_runs
from aoti_debug.compare.diff.difference import Diff, SideError, TensorDifference
from aoti_debug.compare.diff.document import document
from aoti_debug.compare.diff.text import MAX_LISTED, diff_lines, errors_text
from tests import schema
from tests.compare.chains import chain

GOLDEN = Path(__file__).parent / "golden"
ADD = ("aten.add.Tensor",) * 12
SCHEMA = json.loads((schema.DOCS / "diff.schema.json").read_text())


def _diff(folder: Path, wrong: int = -1, step: int = 1) -> Diff:
    return diff_runs(chain(folder / "a", ADD), chain(folder / "b", ADD, wrong=wrong, step=step))


@pytest.mark.parametrize(("name", "wrong", "step"), [("same", -1, 1), ("parts", 2, 1), ("fused", 1, 3)])
def test_text(name: str, wrong: int, step: int, tmp_path: Path, golden: Callable[[Path, str], None]) -> None:
    lines = "\n".join(diff_lines(_diff(tmp_path, wrong, step))).replace(str(tmp_path), "RUNS")
    golden(GOLDEN / f"{name}.txt", lines + "\n")


def test_a_launch_that_was_not_compared_in_full_is_named(tmp_path: Path) -> None:
    same = _diff(tmp_path)
    first, *others = same.pairs
    found = replace(same, pairs=(replace(first, unpaired_writes=("sums",)), *others), same=11, not_recorded=1)
    lines = diff_lines(found)
    assert "12 launches paired launch by launch, 11 the same bytes, 1 not compared in full" in lines
    assert any(line.startswith("note: not compared in full: 0.0: not all that they wrote") for line in lines)
    assert lines[-1] == "SAME as far as it was compared"


def test_the_budget_has_the_last_word(tmp_path: Path) -> None:
    diff = _diff(tmp_path, 2)
    assert diff_lines(diff, [])[-1] == "WITHIN THE BUDGET"
    excesses = [f"0.{n} k buf{n}: it must be equal" for n in range(MAX_LISTED + 2)]
    assert diff_lines(diff, excesses)[-MAX_LISTED - 2 :] == [
        "OVER THE BUDGET",
        *(f"  {line}" for line in excesses[:MAX_LISTED]),
        "  and 2 more (--all)",
    ]


@pytest.mark.parametrize(("wrong", "step"), [(-1, 1), (2, 1), (1, 3)])
def test_the_document_is_as_its_schema_says(wrong: int, step: int, tmp_path: Path) -> None:
    diff = _diff(tmp_path, wrong, step)
    data = json.loads(json.dumps(document(diff, ["0.2 k buf2: it must be equal"]), allow_nan=False))
    assert schema.problems(data, SCHEMA) == []
    assert data["same"] == (wrong < 0)
    assert data["first"] == (None if wrong < 0 else f"0.{wrong}")
    assert [item["outcome"] for item in data["differences"][:1]] == (["parts"] if wrong >= 0 else [])


def test_errors_of_a_side_and_of_one_that_should_be_zero() -> None:
    errors = (SideError(2.83e299, 0.5, 1.0), SideError(3.1e-8, 1e-7, 0.12))
    pair: Any = None
    said = errors_text(TensorDifference(pair, None, errors=errors))
    assert said == "a inf and b 3.1e-08 from float64, at most 1 and 0.12 times what rounding explains: b is nearer"
