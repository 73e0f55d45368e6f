from __future__ import annotations

from pathlib import Path

import schema

from aoti_debug.diagnosis.findings import CLEAN
from aoti_debug.triage import check_order, checks
from aoti_debug.triage.build_failures.finding_kind import BUILD_FAILURE
from aoti_debug.triage.results import finding_kinds


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
        assert check_order.check_of(check.KIND) is check


def test_every_kind_has_a_check_but_a_clean_model_and_a_build_that_fails() -> None:
    assert set(finding_kinds.KINDS) == {CLEAN, BUILD_FAILURE, *(check.KIND for check in check_order.CHECKS)}


def test_the_schema_lists_every_kind() -> None:
    assert set(schema.TRIAGE["properties"]["kind"]["enum"]) == set(finding_kinds.by_value())
