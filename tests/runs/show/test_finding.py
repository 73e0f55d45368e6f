from __future__ import annotations

from dataclasses import replace

import pytest

from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import Finding, Place
from aoti_debug.runs.show.finding import FIRST_SCREEN, all_finding_lines, finding_lines, place_text

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


def test_the_first_screen_of_a_fault() -> None:
    assert finding_lines(FAULT, 80, "report/index.html") == [
        "FAULT SIGSEGV (Segmentation fault)",
        "  where    m.py:28 in forward: t[i]",
        "           0.3  cpp_fused_index_2  table, element 64010",
        "  origin   input index, element 5",
        "  because  out-of-bounds load from table: element 64010 of 64000, 10 past (shown",
        "           by native, checked)",
        "  next     python repro/repro.py",
        "  report   report/index.html; 2 more: --verbose",
    ]


@pytest.mark.parametrize(
    ("operator", "stack", "width", "end"),
    [
        (
            "mine::op.default",
            ("lock at /usr/include/a.h:7", "mine::op at /home/u/op.cpp:9"),
            99,
            "  in mine::op at op.cpp:9",
        ),
        (
            "mine::op.default",
            (
                "wait at /home/u/.pyenv/lib/python3.11/threading.py:327",
                "call at /opt/venv/lib/python3.11/site-packages/torch/_ops.py:5",
                "op at /opt/venv/lib/python3.11/site-packages/mine/op.py:9",
            ),
            99,
            "  in op at op.py:9",
        ),
        ("mine::op.default", ("mine::op at /home/u/op.cpp:9",), 50, ""),
        ("mine::op.default", ("mine::op in libmine.so",), 99, ""),
        ("aten.addmm.out", ("addmm at /home/u/op.cpp:9",), 99, ""),
    ],
)
def test_the_line_of_an_own_operator_stands_behind_its_launch(
    operator: str, stack: tuple[str, ...], width: int, end: str
) -> None:
    crashed = Finding(findings.FAULT, "invalid memory access", Place("0.3", operator, operator), stack=stack)
    assert finding_lines(crashed, width)[1] == f"  where    0.3  {operator}{end}"


def test_all_of_a_fault() -> None:
    full = replace(FAULT, possible=("the index may be index[5]",), warnings=("a note",))
    assert all_finding_lines(full, 80, "report/index.html") == [
        "FAULT SIGSEGV (Segmentation fault)",
        "  where    0.3  cpp_fused_index_2  table, element 64010",
        "           m.py:28 in forward",
        "             t[i]",
        "  because  out-of-bounds load from table: element 64010 of 64000, 10 past",
        "  maybe    the index may be index[5]",
        "  origin   input index, element 5",
        "  shown by native: SIGSEGV",
        "           checked: out-of-bounds load from table",
        "  note     a note",
        "  repro    repro",
        "  next     python repro/repro.py",
        "  report   report/index.html",
    ]


def test_what_is_clean_says_so() -> None:
    assert finding_lines(Finding(findings.CLEAN, "15 launches in 1 call: no fault, outputs finite"), 80) == [
        "CLEAN 15 launches in 1 call: no fault, outputs finite"
    ]


def test_what_was_not_observed_stands_where_the_origin_would() -> None:
    guess = replace(FAULT, origin=None, possible=("the index may come from index[5]", "or from table"))
    lines = finding_lines(guess, 80)
    assert lines[3] == "  maybe    the index may come from index[5]"
    assert lines[-1] == "  more     3 more: --verbose"


def test_no_tool_that_shows_it_is_lost_beside_a_long_sentence() -> None:
    long = replace(FAULT, evidence=("word " * 60,), contradicted_by=("memcheck: no error",))
    lines = finding_lines(long, 80)
    because = next(number for number, line in enumerate(lines) if line.startswith("  because"))
    assert lines[because].endswith(" word word")
    assert lines[because + 1].endswith(" word word")
    assert lines[because + 2] == "           word word word word … (shown by native, checked; not by memcheck)"


def test_long_names_leave_room_for_what_is_said_of_them() -> None:
    name = "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu"
    frame = ModelLine(f"/home/u/{'models/' * 12}llama.py", 128, "forward", "y = attention(q, k, v)")
    place = Place("0.3", name, "aten._scaled_dot_product_flash_attention_for_cpu", argument="buf1", frame=frame)
    line, launch = finding_lines(replace(FAULT, where=place), 80)[1:3]
    assert line.startswith("  where    …")
    assert line.endswith("/llama.py:128 in forward")
    assert launch == "           0.3  aoti_torch_cpu__sca…_attention_for_cpu  (aten._sc…for_cpu)  buf1"


def test_the_model_line_is_not_said_twice() -> None:
    lines = finding_lines(replace(FAULT, evidence=("`t[i]`: aten.index.Tensor: i[5] is 64010",), confirmed_by=()), 80)
    assert "  because  aten.index.Tensor: i[5] is 64010" in lines


@pytest.mark.parametrize("width", [80, 120])
def test_never_more_lines_than_the_first_screen(width: int) -> None:
    many = tuple(f"sentence {n} " + "word " * 30 for n in range(40))
    full = replace(
        FAULT, evidence=many, possible=many, confirmed_by=many, contradicted_by=many, warnings=many, next=many
    )
    for finding in (full, replace(full, origin=None), replace(full, kind=findings.CLEAN)):
        lines = finding_lines(finding, width, "report/index.html")
        assert len(lines) <= FIRST_SCREEN
        assert "--verbose" in lines[-1]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (Place("0.1", "aoti_torch_cpu_addmm_out", "aten.addmm.out"), "0.1  aoti_torch_cpu_addmm_out  (aten.addmm.out)"),
        (Place("0.1", "mylib::op.default", "mylib::op.default", argument="buf1"), "0.1  mylib::op.default  buf1"),
        (Place(input="x"), "input x"),
        (Place(input="x", argument="arg0_1", element=5, coordinates=(1, 2)), "input x[1, 2]"),
        (Place("0.1", "k", argument="buf1", element=5, coordinates=(1, 2)), "0.1  k  buf1[1, 2]"),
        (Place("0.1", "k", element=5), "0.1  k  element 5"),
    ],
)
def test_places(place: Place, text: str) -> None:
    assert place_text(place) == text
