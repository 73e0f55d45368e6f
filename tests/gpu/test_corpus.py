"""Every case of the corpus on a CUDA device: the verdict and its origin are right, clean models raise no alarm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.corpus import cases, triaged
from tests.corpus.case import Case
from tests.corpus.score import Judgement

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def case_of(case: Case) -> pytest.param:  # type: ignore[valid-type]
    marks = pytest.mark.skipif(torch.cuda.device_count() < case.gpus, reason=f"needs {case.gpus} CUDA devices")
    return pytest.param(case, id=case.name, marks=marks)


@pytest.fixture(scope="session")
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Judgement]:
    chosen = triaged.selected(request.session.items, __name__)
    there = [case for case in chosen if case.gpus <= torch.cuda.device_count()]
    return triaged.judgements(there, "cuda", tmp_path_factory)


def test_the_corpus_is_large_enough() -> None:
    assert len(cases.faults("cuda")) >= 15


@pytest.mark.parametrize("case", [case_of(case) for case in cases.faults("cuda")])
def test_fault(judged: Callable[[Case], Judgement], case: Case) -> None:
    assert judged(case) == Judgement((), ())


@pytest.mark.parametrize("case", [case_of(case) for case in cases.clean("cuda")])
def test_clean_model(judged: Callable[[Case], Judgement], case: Case) -> None:
    assert judged(case) == Judgement((), ())
