"""The benchmark that follows what a triage names next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.triage.followed import follow, next_words
from tests.corpus import cases
from tests.corpus.score import Exported

SAID: dict[str, object] = {"confirmed_by": [], "contradicted_by": [], "possible": []}
FAULT: dict[str, object] = {
    **SAID,
    "kind": "fault",
    "confirmed_by": ["native: SIGSEGV"],
    "contradicted_by": ["a: b"],
    "next": ["python repro.py"],
}
DEEPER = "aoti-debug triage model.pt2 --calls 4"
CLEAN = {**SAID, "kind": "clean", "next": [DEEPER]}
MAYBE = {**CLEAN, "kind": "wrong_value", "possible": ["it may be"], "next": ["python repro.py", DEEPER]}


def test_a_verdict_that_leaves_nothing_open_is_the_last() -> None:
    assert next_words(FAULT) == []
    assert next_words(None) == []
    assert next_words({**CLEAN, "next": []}) == []
    assert next_words({**FAULT, "possible": ["without guards it may overwrite"], "next": [DEEPER]}) == []


def test_what_is_open_names_the_next_triage() -> None:
    words = ["triage", "model.pt2", "--calls", "4"]
    assert next_words(CLEAN) == words
    assert next_words({**CLEAN, "kind": "incomplete"}) == words
    assert next_words(MAYBE) == words
    assert next_words({**FAULT, "confirmed_by": [], "next": ["python repro.py", DEEPER]}) == words


def test_it_types_what_it_is_told_and_no_option_of_the_case(tmp_path: Path) -> None:
    case = next(case for case in cases.faults("cpu") if case.options and not case.native)
    typed: list[Sequence[str]] = []

    def execute(words: Sequence[str], _: Path) -> tuple[int, str, str]:
        typed.append(words)
        verdict = CLEAN if len(typed) == 1 else FAULT
        return (0 if verdict is CLEAN else 1), json.dumps(verdict), ""

    outcome, commands = follow(Exported(case, tmp_path / "model.pt2", None, (), None), tmp_path, execute)
    assert (commands, outcome.verdict) == (2, FAULT)
    assert not set(case.options) & set(typed[0])
    assert list(typed[1]) == ["triage", "model.pt2", "--calls", "4", "--json"]
