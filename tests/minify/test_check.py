"""The checks of scripts, by kind of finding."""

from __future__ import annotations

import pytest

from aoti_debug.diagnosis.findings import Finding, FindingKind
from aoti_debug.minify.check import checks_of
from aoti_debug.triage import finding_kinds


@pytest.mark.parametrize("kind", [check.KIND for check in finding_kinds.CHECKS], ids=lambda kind: kind.value)
def test_every_kind_of_finding_has_checks(kind: FindingKind) -> None:
    assert checks_of(Finding(kind, "what"))
