"""Words about the operand that an operator cannot use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aoti_debug.compare.locate_operator import CallInEager, LocatedOperand, LocatedOrigin
from aoti_debug.compare.protocol.messages import (
    BadOperand,
    BadSource,
    Computed,
    Made,
    Operand,
    Origin,
    Refusal,
    TracedElement,
)
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.diagnosis.findings import FAULT, NONFINITE, Finding, Place
from aoti_debug.triage.investigation.graph_trace import (
    computation,
    operand_words,
    with_eager_call,
    with_operand,
    with_origin,
    words,
)
from tests.triage.investigation.made_values import made, number

LINE = ModelLine("model.py", 7, "forward", "    rows = table[index * 3]")
OTHER = ModelLine("model.py", 6, "forward", "    index = ids * 3")
BAD = BadOperand(
    launch="0.1",
    node="index",
    operator="aten.index.Tensor",
    name="ids",
    index=(5,),
    value=1_000_000,
    count=1,
    table="table",
    dimension=0,
    size=1000,
)
MADE = Computed(
    "mul",
    "aten.mul.Tensor",
    "int32",
    (Operand(name="ids", index=(5,), value="3000"), Operand(name="", value="1000000")),
    "3e9",
)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (BAD, "aten.index.Tensor: ids[5] is 1000000, table has 1000 rows"),
        (
            BadOperand(
                launch="0.1",
                node="g",
                operator="aten.gather.default",
                name="i",
                index=(),
                value=-1,
                count=3,
                table="x",
                dimension=2,
                size=8,
            ),
            "aten.gather.default: i is -1, x has size 8 in dimension 2 (3 elements are bad)",
        ),
        (
            BadOperand(
                launch="0.1", node="d", operator="aten.div.Tensor_mode", name="size", index=(1, 2), value=0, count=1
            ),
            "aten.div.Tensor_mode: size[1, 2] is 0",
        ),
        (
            BadOperand(
                launch="0.1",
                node="d",
                operator="aten.div.Tensor_mode",
                name="size",
                index=(1,),
                value=-1,
                count=1,
                dividend="-2147483648",
            ),
            "aten.div.Tensor_mode: size[1] is -1, and -2147483648 / -1 does not fit into its dtype",
        ),
        (
            BadOperand(
                launch="0.1",
                node="i",
                operator="aten.index.Tensor",
                name="mul",
                index=(5,),
                value=-1294967296,
                count=1,
                table="table",
                dimension=0,
                size=9,
                computed=MADE,
            ),
            "aten.index.Tensor: mul[5] is -1294967296, table has 9 rows; aten.mul.Tensor: ids[5] = 3000 * 1000000 = "
            "-1294967296: 3000000000 does not fit into int32",
        ),
    ],
)
def test_words(bad: BadOperand, text: str) -> None:
    assert operand_words(bad) == text


def test_the_finding_names_the_operator() -> None:
    finding = Finding(FAULT, "SIGSEGV", Place("0.1", "cpp_fused_0", frame=OTHER), ("it never returned",))
    found = with_operand(finding, LocatedOperand(BAD, LINE, None, "in true_graph_0: index = …"))
    assert found.where is not None
    assert found.where.frame == LINE
    assert found.origin is not None
    assert (found.origin.operator, found.origin.frame) == ("aten.index.Tensor", LINE)
    assert found.evidence[0].startswith("`rows = table[index * 3]`: aten.index.Tensor: ids[5]")
    assert found.what == "ids[5] is 1000000, table has 1000 rows"
    message = "0.1 cpp_fused_0 ended with: SIGSEGV"
    assert found.evidence[1:] == ("in true_graph_0: index = …", message, "it never returned")


def test_the_origin_of_an_index_stays_what_it_is() -> None:
    origin = Place(input="ids", element=5)
    finding = Finding(FAULT, "SIGSEGV", Place("0.1", "cpp_fused_0", frame=OTHER), origin=origin)
    assert with_operand(finding, LocatedOperand(BAD, LINE, None, "")).origin == origin


@pytest.mark.parametrize(
    ("source", "element", "headline", "sentence"),
    [
        (
            BadSource(node="arg0_1", element=7, index=(1, 3), value="3000", instead="4", alone=True),
            7,
            "rows[1, 3] is 3000, so ids[5] is 1000000, table has 1000 rows",
            "it comes from rows[1, 3], which is 3000: with 4 there, the graph gives a number that can be used",
        ),
        (
            BadSource(node="arg0_1", element=7, index=(1, 3), value="3000", instead="4", alone=False),
            7,
            "ids[5] is 1000000, table has 1000 rows",
            "it comes from rows[1, 3], which is 3000; other elements make it, too",
        ),
        (
            BadSource(node="arg0_1", element=None, index=(), value="", instead="4", alone=False),
            None,
            "ids[5] is 1000000, table has 1000 rows",
            "it comes from rows: several of its elements together make it",
        ),
        (
            BadSource(node="arg0_1", element=5, index=(1, 1), value="1000000", instead="", alone=True),
            5,
            "rows[1, 1] is 1000000, table has 1000 rows",
            "",
        ),
    ],
)
def test_the_origin_is_the_element_of_the_input_that_the_graph_shows(
    source: BadSource, element: int | None, headline: str, sentence: str
) -> None:
    made = Place("0.0", "cpp_fused_mul_0", argument="buf0", element=5)
    finding = Finding(FAULT, "SIGSEGV", Place("0.1", "cpp_fused_0"), origin=made, chain=(made, Place("0.1")))
    found = with_operand(finding, LocatedOperand(replace(BAD, source=source), LINE, OTHER, "", "rows"))
    assert found.origin == Place(input="rows", element=element, coordinates=source.index, frame=OTHER)
    assert [place.launch for place in found.chain] == ["", "0.0", "0.1"]
    assert found.what == headline
    assert found.evidence[1:] == (*((sentence,) if sentence else ()), "0.1 cpp_fused_0 ended with: SIGSEGV")


def test_an_operand_of_an_unknown_source_leaves_the_origin_with_its_operator() -> None:
    source = BadSource(node="buf0", element=5, index=(5,), value="1000000", instead="", alone=True)
    finding = Finding(FAULT, "SIGSEGV", Place("0.1", "cpp_fused_0"))
    found = with_operand(finding, LocatedOperand(replace(BAD, source=source), LINE, None, ""))
    assert found.origin is not None
    assert (found.origin.input, found.origin.operator) == ("", "aten.index.Tensor")


def test_an_operator_that_makes_a_bad_index_of_any_input_is_the_origin() -> None:
    """index + FAR: no input is to blame, whatever a trial names."""
    finding = Finding(FAULT, "SIGSEGV", Place("0.1", "cpp_fused_0"), origin=Place(input="ids", element=5))
    found = with_operand(finding, LocatedOperand(replace(BAD, computed=MADE), LINE, OTHER, ""))
    assert found.origin is not None
    assert (found.origin.input, found.origin.operator, found.origin.frame) == ("", "aten.mul.Tensor", OTHER)


ORIGIN_LINE = ModelLine("model.py", 7, "forward", "    ratio = kept / total")


def test_the_finding_names_the_operator_and_its_line() -> None:
    where = Place("0.0", "cpp_fused_div_0", argument="buf4", element=80)
    finding = Finding(NONFINITE, "NaN in buf4", where, evidence=("it reads finite values",), origin=where)
    first = made("aten.div.Tensor", number("a", "1.0"), number("b", "0.0"), value="inf", exact="inf")
    then = made("aten.sub.Tensor", number("x", "inf"), number("y", "inf"))
    found = with_origin(finding, LocatedOrigin(Origin(TracedElement("0.0", "buf4", 80), first, then), ORIGIN_LINE))
    assert found.what == "NaN in buf4: aten.div.Tensor: a = 1 / b = 0, a division by zero"
    assert found.where == Place("0.0", "cpp_fused_div_0", argument="buf4", element=80, frame=ORIGIN_LINE)
    assert found.origin == Place("0.0", "cpp_fused_div_0", "aten.div.Tensor", "", "buf4", 80, ORIGIN_LINE)
    assert found.evidence == (
        "`ratio = kept / total`: aten.div.Tensor: a = 1 / b = 0, a division by zero",
        "then aten.sub.Tensor: x = inf - y = inf, the difference of two infinities",
        "it reads finite values",
    )
    unknown = with_origin(finding, LocatedOrigin(Origin(TracedElement("0.0", "buf4", 80), first), None))
    assert unknown.evidence[0] == "aten.div.Tensor: a = 1 / b = 0, a division by zero"
    assert unknown.where == where


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (
            made("aten.div.Tensor", number("mul", "1.5", 5, 3), number("total", "0.0", 5, 0), value="inf", exact="inf"),
            "aten.div.Tensor: mul[5, 3] = 1.5 / total[5, 0] = 0, a division by zero",
        ),
        (
            made("aten.div.Tensor", number("a", "0.0"), number("b", "0.0")),
            "aten.div.Tensor: a = 0 / b = 0, zero divided by zero",
        ),
        (
            made(
                "aten.mul.Tensor",
                number("x", "300.0", 2),
                Operand(name="", value="300.0"),
                exact="90000.0",
                dtype="float16",
            ),
            "aten.mul.Tensor: x[2] = 300 * 300 = 90000, beyond the largest float16 (65504)",
        ),
        (
            made("aten.mul.Tensor", number("x", "0.0"), number("y", "inf")),
            "aten.mul.Tensor: x = 0 * y = inf, zero times infinity",
        ),
        (
            made("aten.sub.Tensor", number("x", "inf"), number("y", "inf")),
            "aten.sub.Tensor: x = inf - y = inf, the difference of two infinities",
        ),
        (
            made("aten.log.default", number("x", "-1.0", 4)),
            "aten.log.default: log(x[4] = -1), the logarithm of a negative number",
        ),
        (
            made("aten.rsqrt.default", number("x", "0.0"), value="inf", exact="inf"),
            "aten.rsqrt.default: rsqrt(x = 0), a division by zero",
        ),
        (
            made("aten.exp.default", number("x", "1000.0"), value="inf", exact="inf"),
            "aten.exp.default: exp(x = 1000), too large for any number",
        ),
        (
            made("aten.exp.default", number("x", "100.0"), value="inf", exact="2.6881171418161356e+43"),
            "aten.exp.default: exp(x = 100) = 2.68812e+43, beyond the largest float32 (3.40282e+38)",
        ),
        (
            made("prims.convert_element_type.default", number("x", "70000.0"), exact="70000.0", dtype="float16"),
            "prims.convert_element_type.default: x = 70000, beyond the largest float16 (65504)",
        ),
        (
            made("aten.sum.dim_IntList", Operand(name="x", count=4, zeros=1, plus_infinities=2, minus_infinities=1)),
            "aten.sum.dim_IntList: sum of 4 elements of x (2 +Inf, 1 -Inf, 1 zero among them) is nan",
        ),
        (
            made("aten.sum.dim_IntList", Operand(name="x", count=4), exact="80000.0", value="inf", dtype="float16"),
            "aten.sum.dim_IntList: sum of 4 elements of x is 80000, beyond the largest float16 (65504)",
        ),
        (
            made("aten.sum.dim_IntList", Operand(name="x", count=4), exact="0.0", value="inf", dtype="float16"),
            "aten.sum.dim_IntList: sum of 4 elements of x is 0; on the way to it, a part may have gone beyond the "
            "largest float16 (65504)",
        ),
        (
            replace(
                made("aten.max_pool2d.default", Operand(name="x", count=4), value="-inf"), sizes=("[0, 0]", "[7, 7]")
            ),
            "aten.max_pool2d.default: max_pool2d of 4 elements of x, with [0, 0], [7, 7], is -inf",
        ),
        (made("aten.full.default"), "aten.full.default: full is nan"),
    ],
)
def test_arithmetic_in_words(of: Made, text: str) -> None:
    assert words(of) == text


def test_a_boolean_operand_is_no_number() -> None:
    operands = (
        Operand(name="ne", index=(2,), value="True"),
        Operand(name="index", index=(2,), value="-5"),
        Operand(name="", index=(), value="0"),
    )
    assert computation("aten.where.self", operands) == "where(ne[2] = True, index[2] = -5, 0)"
    halved = (Operand(name="n", index=(1,), value="129"), Operand(name="", value="2"))
    assert computation("aten.div.Tensor_mode", halved) == "div(n[1] = 129, 2)"  # 64: it rounds
    assert computation("aten.div.Tensor", halved) == "n[1] = 129 / 2"


OUTSIDE = Finding(FAULT, "RuntimeError: Expected u0 < s27", evidence=("it happened between launches",))


def test_a_fault_of_no_launch_that_eager_has_too() -> None:
    line = ModelLine("m.py", 5, "forward", "b = x.item()")
    text = "Runtime assertion failed for u0 < s27"
    refusal = Refusal(error="RuntimeError", words=text, node="check", operator="aten._assert_scalar.default")
    found = with_eager_call(OUTSIDE, CallInEager(refusal, line))
    assert (found.kind, found.what, found.origin) == (FAULT, OUTSIDE.what, None)
    assert found.where == Place(operator="aten._assert_scalar.default", frame=line)
    assert found.evidence == (
        "the exported program, called in eager with the inputs of this run, raises RuntimeError",
        f"it says: {text}",
        *OUTSIDE.evidence,
    )
    assert [" may " in sentence for sentence in found.possible] == [True]
    of_shapes = with_eager_call(OUTSIDE, CallInEager(replace(refusal, operator="aten.mm.default")))
    assert of_shapes.possible == ()


def test_a_fault_of_no_launch_that_eager_does_not_have() -> None:
    found = with_eager_call(OUTSIDE, CallInEager(None))
    said = "the exported program, called in eager with the inputs of this run, raises nothing"
    assert found == replace(OUTSIDE, evidence=(said, *OUTSIDE.evidence))
