"""The results of the benchmark of PyTorch's operators: what counts, and what a bug of torch explains."""

from __future__ import annotations

import pytest

from benchmarks.comparison.operator_results import KNOWN_BUGS, Outcome, Result, explained
from benchmarks.models.operator_samples import Target

BUG = KNOWN_BUGS[0]
CPU = Target("cpu", "float32")


def test_a_known_bug_explains_what_it_looks_like() -> None:
    found = explained(Result(BUG.operator, BUG.outcome, "it is off"), CPU)
    assert found == Result(BUG.operator, Outcome.KNOWN, f"{BUG.reason} (it is off)")


@pytest.mark.parametrize(
    ("result", "target"),
    [
        (Result("abs", BUG.outcome, ""), CPU),
        (Result(BUG.operator, Outcome.OTHER_BITS, ""), CPU),
        (Result(BUG.operator, BUG.outcome, ""), Target("cuda", "float32")),
        (Result(BUG.operator, BUG.outcome, ""), Target("cpu", "float16")),
    ],
)
def test_and_nothing_else(result: Result, target: Target) -> None:
    assert explained(result, target) == result


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_is_unexplained_counts_and_what_torch_cannot_do_does_not(outcome: Outcome) -> None:
    torchs = (Outcome.NO_EXPORT, Outcome.NO_AOTI, Outcome.UNSTEADY)
    assert outcome.counts is (outcome not in torchs)
    assert outcome.is_unexplained is (outcome.counts and outcome not in (Outcome.GOOD, Outcome.KNOWN))
