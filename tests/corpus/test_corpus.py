"""Every case of the corpus on the CPU: the verdict and its origin are right, and clean models raise no alarm."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from corpus import cases, triaged
from corpus.case import Case
from corpus.score import Judgement

pytestmark = pytest.mark.slow


def named(case: Case) -> str:
    return case.name


@pytest.fixture(scope="session")
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Case], Judgement]]:
    chosen = triaged.selected(request.session.items, __name__)
    with triaged.judgements(chosen, "cpu", tmp_path_factory.mktemp("corpus")) as judgement:
        yield judgement


def test_the_corpus_is_large_enough() -> None:
    assert len(cases.faults("cpu")) >= 20
    assert len(cases.clean("cpu")) >= 20


def test_no_two_cases_have_one_name() -> None:
    names = [case.name for case in (*cases.faults("cpu"), *cases.clean("cpu"))]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("case", cases.faults("cpu"), ids=named)
def test_fault(judged: Callable[[Case], Judgement], case: Case) -> None:
    assert judged(case) == Judgement((), ())


@pytest.mark.parametrize("case", cases.clean("cpu"), ids=named)
def test_clean_model(judged: Callable[[Case], Judgement], case: Case) -> None:
    assert judged(case) == Judgement((), ())
