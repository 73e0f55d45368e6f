from __future__ import annotations

from pathlib import Path

from aoti_debug.compare.outcome import DIFFERS, REFUSED
from aoti_debug.runs.diagnosis.findings import CLEAN, INCOMPLETE
from aoti_debug.triage import check_order, checks
from aoti_debug.triage.build_failures.finding_kind import BUILD_FAILURE
from aoti_debug.triage.checks import wrong_value
from aoti_debug.triage.results import finding_kinds
from tests import schema


def test_every_module_of_the_checks_is_in_the_list() -> None:
    modules = {path.stem for path in Path(checks.__path__[0]).glob("*.py")} - {"__init__"}
    assert {str(check.__name__).rpartition(".")[2] for check in check_order.CHECKS} == modules  # type: ignore[attr-defined]


def test_no_two_kinds_have_a_value_a_heading_or_a_title_in_common() -> None:
    known = finding_kinds.by_value()
    assert len(known) == len(finding_kinds.KINDS)
    for name in ("heading", "title", "sign"):
        assert len({getattr(kind, name) for kind in known.values()}) == len(known)


def test_a_kind_is_confirmed_by_its_own_check() -> None:
    for check in check_order.CHECKS:
        assert check_order.check_of(check.KIND, check_order.CHECKS[0]) is check
    assert check_order.check_of(DIFFERS, wrong_value) is wrong_value


def test_every_kind_has_a_check_but_those_of_a_build_and_of_a_comparison() -> None:
    others = {CLEAN, INCOMPLETE, BUILD_FAILURE, REFUSED, DIFFERS}
    assert set(finding_kinds.KINDS) == {*others, *(check.KIND for check in check_order.CHECKS)}


def test_exit_codes_tell_clean_incomplete_and_wrong_apart() -> None:
    codes = {kind: kind.exit_code for kind in finding_kinds.KINDS}
    assert (codes.pop(CLEAN), codes.pop(INCOMPLETE)) == (0, 8)
    assert set(codes.values()) == {1}
    assert all(kind.is_fault for kind in codes)


def test_the_schema_lists_every_kind() -> None:
    assert set(schema.TRIAGE["properties"]["kind"]["enum"]) == set(finding_kinds.by_value())
