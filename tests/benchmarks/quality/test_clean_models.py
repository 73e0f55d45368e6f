"""What the benchmark of clean models counts as a false finding."""

from __future__ import annotations

import pytest

from benchmarks.quality.clean_models import print_table

ROW = {
    "case": "corpus counter",
    "kind": "race",
    "what": "nothing recorded orders two launches",
    "input": "count",
    "input_kind": "buffer",
    "state": ["count"],
    "machine": "a machine",
    "seconds": 1.0,
}


def test_a_race_for_what_the_program_overwrites_is_no_false_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_table([dict(ROW)])
    assert "corpus counter" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "changed",
    [
        {"input": "mean"},
        {"input": None, "input_kind": None, "what": "both are passed bytes 0 to 3 of count"},
        {"input_kind": "input"},
        {"kind": "threads"},
    ],
)
def test_any_other_race_is_one(capsys: pytest.CaptureFixture[str], changed: dict[str, str | None]) -> None:
    assert not print_table([{**ROW, **changed}])
    assert "corpus counter" in capsys.readouterr().out
