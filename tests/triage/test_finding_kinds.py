from __future__ import annotations

from pathlib import Path

import schema

from aoti_debug.triage import checks, finding_kinds


def test_every_module_of_the_checks_is_in_the_list() -> None:
    modules = {path.stem for path in Path(checks.__path__[0]).glob("*.py")} - {"__init__"}
    assert {str(check.__name__).rpartition(".")[2] for check in finding_kinds.CHECKS} == modules  # type: ignore[attr-defined]


def test_no_two_kinds_have_a_value_a_heading_or_a_title_in_common() -> None:
    known = finding_kinds.by_value()
    assert len(known) == len(finding_kinds.CHECKS) + 2, "the checks' kinds, a clean model, and a build that fails"
    for name in ("heading", "title", "sign"):
        assert len({getattr(kind, name) for kind in known.values()}) == len(known)


def test_a_kind_is_confirmed_by_its_own_check() -> None:
    for check in finding_kinds.CHECKS:
        assert finding_kinds.check_of(check.KIND) is check


def test_the_schema_lists_every_kind() -> None:
    assert set(schema.TRIAGE["properties"]["kind"]["enum"]) == set(finding_kinds.by_value())
