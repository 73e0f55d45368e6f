from __future__ import annotations

import importlib

from aoti_debug.compare.outcome import DIFFERS, REFUSED
from aoti_debug.runs.diagnosis.findings import CLEAN, INCOMPLETE, UNFINISHED
from aoti_debug.triage import session
from aoti_debug.triage.checks import wrong_value
from aoti_debug.triage.investigation.investigation import Check
from aoti_debug.triage.results import finding_kinds
from aoti_debug.triage.results.finding_kinds import BUILD_FAILURE
from tests import schema
from tests.paths import PACKAGE


def test_every_check_is_in_the_list() -> None:
    names = [path.stem for path in (PACKAGE / "triage" / "checks").glob("*.py") if path.stem != "__init__"]
    modules = [importlib.import_module(f"aoti_debug.triage.checks.{name}") for name in names]
    checks = [value for module in modules for value in vars(module).values() if isinstance(value, Check)]
    assert len(checks) == len(session.CHECKS)
    assert all(check in session.CHECKS for check in checks)


def test_no_two_kinds_have_a_value_a_heading_or_a_title_in_common() -> None:
    known = finding_kinds.by_value()
    assert len(known) == len(finding_kinds.KINDS)
    for name in ("heading", "title", "sign"):
        assert len({getattr(kind, name) for kind in known.values()}) == len(known)


def test_a_kind_is_confirmed_by_its_own_check() -> None:
    for check in session.CHECKS:
        assert session.check_of(check.kind, session.CHECKS[0]) is check
    assert session.check_of(DIFFERS, wrong_value.CHECK) is wrong_value.CHECK


def test_every_kind_has_a_check_but_those_of_a_build_and_of_a_comparison() -> None:
    others = {CLEAN, INCOMPLETE, UNFINISHED, BUILD_FAILURE, REFUSED, DIFFERS}
    assert set(finding_kinds.KINDS) == {*others, *(check.kind for check in session.CHECKS)}


def test_exit_codes_tell_clean_incomplete_and_wrong_apart() -> None:
    codes = {kind: kind.exit_code for kind in finding_kinds.KINDS}
    assert (codes.pop(CLEAN), codes.pop(INCOMPLETE), codes.pop(UNFINISHED)) == (0, 8, 8)
    assert set(codes.values()) == {1}
    assert all(kind.is_fault for kind in codes)


def test_the_schema_lists_every_kind() -> None:
    assert set(schema.TRIAGE["properties"]["kind"]["enum"]) == set(finding_kinds.by_value())
