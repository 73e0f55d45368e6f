"""The checks of scripts, by kind of finding."""

from __future__ import annotations

import pytest

from aoti_debug.compare.outcome import REFUSED
from aoti_debug.runs.diagnosis.findings import Finding, FindingKind
from aoti_debug.triage.minify.scripts.check import checks_of
from aoti_debug.triage.results import finding_kinds

KINDS = [kind for kind in finding_kinds.by_value().values() if kind.is_fault and kind is not REFUSED]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
def test_every_kind_of_finding_has_checks(kind: FindingKind) -> None:
    assert checks_of(Finding(kind, "what"))


def test_no_script_shows_what_eager_refuses() -> None:
    assert checks_of(Finding(REFUSED, "index -1 is out of bounds")) == ()
