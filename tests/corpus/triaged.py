"""Exports the cases that a test session has selected, all at once, and triages one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.corpus import score
from tests.corpus.case import Case
from tests.corpus.score import Judgement
from tests.once import once


def selected(items: Sequence[Any], module: str) -> list[Case]:
    """The cases that the tests of a session take from `case`, a parameter of theirs."""
    cases = [
        item.callspec.params["case"] for item in items if item.module.__name__ == module and "case" in _params(item)
    ]
    return list({case.name: case for case in cases}.values())


def _params(item: Any) -> Any:
    return item.callspec.params if hasattr(item, "callspec") else {}


def judgements(cases: Sequence[Case], device: str, factory: pytest.TempPathFactory) -> Callable[[Case], Judgement]:
    """A function that triages one of the cases."""

    def export(folder: Path) -> tuple[Path, Path | None]:
        found = list(score.export(cases, device, folder))
        return folder, next((of.library for of in found if of.library), None)

    folder, library = once(factory, f"corpus-{device}", export)

    def judge(case: Case) -> Judgement:
        of = score.exported(case, folder, library)
        return score.judge(of, score.triage(of, factory.mktemp(case.name), score.here))

    return judge
