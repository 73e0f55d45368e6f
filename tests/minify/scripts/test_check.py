"""The checks of scripts, by kind of finding."""

from __future__ import annotations

import pytest

from aoti_debug.diagnosis.findings import CLEAN, Finding, FindingKind
from aoti_debug.minify.scripts.check import checks_of
from aoti_debug.triage.results import finding_kinds

KINDS = [kind for kind in finding_kinds.by_value().values() if kind != CLEAN]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
def test_every_kind_of_finding_has_checks(kind: FindingKind) -> None:
    assert checks_of(Finding(kind, "what"))
