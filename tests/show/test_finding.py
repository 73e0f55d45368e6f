from __future__ import annotations

from dataclasses import replace

import pytest

from aoti_debug.diagnosis import findings
from aoti_debug.diagnosis.findings import Finding, Place
from aoti_debug.manifest import ModelLine
from aoti_debug.show.finding import MOST_LINES, finding_lines, place_text

VICTIM = Place(
    "0.3", "cpp_fused_index_2", argument="table", element=64010, frame=ModelLine("m.py", 28, "forward", "  t[i]")
)
FAULT = Finding(
    findings.FAULT,
    "SIGSEGV (Segmentation fault)",
    VICTIM,
    evidence=("out-of-bounds load from table: element 64010 of 64000, 10 past",),
    origin=Place(input="index", argument="arg0_1", element=5),
    confirmed_by=("native: SIGSEGV", "checked: out-of-bounds load from table"),
    repro="repro",
    next=("python repro/repro.py",),
)


def test_a_fault_in_few_lines() -> None:
    assert finding_lines(FAULT, 80) == [
        "FAULT SIGSEGV (Segmentation fault)",
        "  where    0.3  cpp_fused_index_2  table, element 64010",
        "           m.py:28 in forward",
        "             t[i]",
        "  because  out-of-bounds load from table: element 64010 of 64000, 10 past",
        "  origin   input index  element 5",
        "  shown by native: SIGSEGV",
        "           checked: out-of-bounds load from table",
        "  repro    repro",
        "  next     python repro/repro.py",
    ]


def test_what_is_clean_says_so() -> None:
    assert finding_lines(Finding(findings.CLEAN, "15 launches in 1 call: no fault, outputs finite"), 80) == [
        "CLEAN 15 launches in 1 call: no fault, outputs finite"
    ]


def test_never_more_lines_than_a_screen() -> None:
    many = tuple(f"sentence {n} " + "word " * 30 for n in range(40))
    full = replace(FAULT, evidence=many, confirmed_by=many, contradicted_by=many, warnings=many, next=many)
    lines = finding_lines(full, 80)
    assert len(lines) <= MOST_LINES
    assert [line for line in lines if line.startswith("  next")]
    assert any("more" in line for line in lines)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (Place("0.1", "aoti_torch_cpu_addmm_out", "aten.addmm.out"), "0.1  aoti_torch_cpu_addmm_out  (aten.addmm.out)"),
        (Place("0.1", "mylib::op.default", "mylib::op.default", argument="buf1"), "0.1  mylib::op.default  buf1"),
        (Place(input="x"), "input x"),
    ],
)
def test_places(place: Place, text: str) -> None:
    assert place_text(place) == text
