from __future__ import annotations

import math

import pytest

from aoti_debug.runs.rundir import watch_condition
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.watch_condition import ConditionError

MIXED = Statistics(12, 1, 0, 2, 3, -5.0, 4.0, 0, 0, 0.5, 1.0)
ONLY_NAN = Statistics(2, 2, 0, 0, 0, None, None, 0, 0, math.nan, math.nan)
INFINITE = Statistics(2, 0, 2, 0, 0, None, None, 0, 0, math.nan, math.nan)


def holds(text: str, statistics: Statistics) -> bool:
    return watch_condition.holds(watch_condition.parse(text), lambda name: watch_condition.statistic(name, statistics))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nan", True),
        ("posinf", False),
        ("neginf == inf and 2 == neginf", True),
        ("nonfinite >= 4", False),
        ("max > 3.5 and max < 4.5", True),
        ("min < -1e30", True),  # an infinity counts
        ("absmax > 1e30", True),
        ("zeros > 5 or mean != .5 or std<=1", True),
        ("zeros > 5 and (mean < 1 or std < 2)", False),
        ("(zeros > 5 and mean < 1) or std < 2", True),
        ("zeros > 5 or mean < 1 and std < 2", True),
        ("numel == 12", True),
    ],
)
def test_conditions(text: str, expected: bool) -> None:
    assert holds(text, MIXED) == expected


@pytest.mark.parametrize("name", ["min", "max", "absmax", "mean", "std"])
def test_what_no_element_counts_for_meets_no_comparison(name: str) -> None:
    assert not any(holds(f"{name} {sign} 0", ONLY_NAN) for sign in ("<", "<=", ">", ">=", "==", "!="))


def test_only_infinities() -> None:
    assert holds("min > 1e300 and max > 1e300 and absmax > 1e300", INFINITE)
    assert not holds("mean < 1 or mean >= 1", INFINITE)


def test_names_of_the_callers_own() -> None:
    parsed = watch_condition.parse("rank == 2 and kind != a.b1", numbers=("rank",), texts=("kind",))
    assert watch_condition.names(parsed) == {"rank", "kind"}
    values: list[dict[str, float | str | None]] = [{"rank": 2.0, "kind": "c"}, {"rank": 2.0, "kind": "a.b1"}]
    assert [watch_condition.holds(parsed, known.get) for known in values] == [True, False]
    assert not watch_condition.holds(parsed, {"rank": 2.0}.get)  # not known


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("rank", 4, "a comparison is missing, such as > 0"),
        ("kind > b", 5, "kind is compared by == and != only"),
        ("kind ==", 7, "a word is missing"),
        ("absmax >> 1", 8, "a statistic or a number is missing"),
    ],
)
def test_what_is_no_condition(text: str, at: int, problem: str) -> None:
    with pytest.raises(ConditionError, match=problem) as caught:
        watch_condition.parse(text, numbers=("rank",), texts=("kind",))
    assert caught.value.shown_in(text) == f"{problem}\n  {text}\n  {' ' * at}^"
