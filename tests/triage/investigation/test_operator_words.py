from __future__ import annotations

import pytest

from aoti_debug.compare.protocol.bad_elements import Made, Operand
from aoti_debug.triage.investigation.operator_words import computation, words
from tests.triage.investigation.made_values import made, number


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
