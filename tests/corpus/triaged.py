"""Triages the cases that a test session has selected, each once, two at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from corpus import score
from corpus.case import Case
from corpus.score import Exported, Judgement

AT_ONCE = 2


def selected(items: Sequence[Any], module: str) -> list[Case]:
    """The cases that the tests of a session take from `case`, a parameter of theirs."""
    cases = [
        item.callspec.params["case"] for item in items if item.module.__name__ == module and "case" in _params(item)
    ]
    return list({case.name: case for case in cases}.values())


def _params(item: Any) -> Any:
    return item.callspec.params if hasattr(item, "callspec") else {}


@contextmanager
def judgements(cases: Sequence[Case], device: str, folder: Path) -> Iterator[Callable[[Case], Judgement]]:
    """Triages the cases, in order, and gives a function that waits for the judgement on one of them."""
    with ThreadPoolExecutor(min(AT_ONCE, len(os.sched_getaffinity(0)))) as pool:
        found: dict[str, Future[Judgement]] = {}
        try:
            for of in score.export(cases, device, folder / "exported"):
                found[of.case.name] = pool.submit(_judged, of, folder / of.case.name)
            yield lambda case: found[case.name].result()
        finally:
            for future in found.values():
                future.cancel()


def _judged(of: Exported, folder: Path) -> Judgement:
    return score.judge(of, score.triage(of, folder))
