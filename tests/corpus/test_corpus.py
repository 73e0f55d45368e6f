"""The corpus on the CPU: the verdict and its origin are right, and clean models raise no alarm.

Every case takes seconds, so that the suite runs one of each kind, and of clean models six in one; `--whole-corpus` runs
all of them, as benchmarks/triage/triage.py does.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.corpus import cases, triaged
from tests.corpus.case import Case
from tests.corpus.score import Judgement

pytestmark = pytest.mark.slow

ALWAYS = frozenset(
    {
        *("index_past_end", "index_made_earlier", "second_call", "while_iteration_7", "embedding_bag_past_end"),
        # What comes in with inputs and weights: tests/triage/nonfinite/test_infinite_inputs.py.
        *("zero_by_zero", "half_overflow", "inf_minus_inf"),
        *("fake_lies_about_dtype", "mutated_alias_with_offset", "inputs_overlap", "input_with_other_strides"),
        *(
            "operator_segfaults",
            "operator_throws",
            "operator_waits",
            "write_into_neighbour",
            "half_left_unwritten",
            "wrong_relu",
            "eager_refuses_a_computed_index",
            "cast_in_a_kernel",
        ),
        "random_numbers",
    }
)


def named(case: Case) -> str:
    return case.name


@pytest.fixture(scope="session")
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Judgement]:
    chosen = triaged.selected(request.session.items, __name__)
    return triaged.judgements(chosen, "cpu", tmp_path_factory)


def test_the_corpus_is_large_enough() -> None:
    assert len(cases.faults("cpu")) >= 20
    assert len(cases.clean("cpu")) >= 20


def test_no_two_cases_have_one_name() -> None:
    names = [case.name for case in (*cases.faults("cpu"), *cases.clean("cpu"))]
    assert len(names) == len(set(names))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    every = cases.faults("cpu") if metafunc.function is test_fault else (*cases.clean("cpu"), cases.TOGETHER)
    whole = metafunc.config.getoption("--whole-corpus")
    chosen = [case for case in every if whole or case.name in ALWAYS or case is cases.TOGETHER]
    metafunc.parametrize("case", chosen, ids=named)


def test_those_that_always_run_are_there() -> None:
    assert {case.name for case in (*cases.faults("cpu"), *cases.clean("cpu"))} >= ALWAYS


def test_fault(judged: Callable[[Case], Judgement], case: Case) -> None:
    assert judged(case) == Judgement((), ())


def test_clean_model(judged: Callable[[Case], Judgement], case: Case) -> None:
    assert judged(case) == Judgement((), ())
