"""The computation of an operator in words: from which numbers, and why it gives no finite one."""

from __future__ import annotations

import math

from aoti_debug.compare.protocol.bad_elements import Made, Operand
from aoti_debug.triage.nonfinite.causes import domain_error, overflow_text

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "true_divide": "/"}


def words(made: Made) -> str:
    """ "aten.div.Tensor: weights[5, 3] = 1.5 / total[5, 0] = 0, a division by zero"."""
    return f"{made.operator}: {_computation(made)}"


def _computation(made: Made) -> str:
    name, exact = made.operator.split(".")[1], float(made.exact)
    values = [float(operand.value) for operand in made.operands if operand.value is not None]
    if made.reduces or not values:
        rows = "; ".join(_row(operand) for operand in made.operands if operand.count > 1)
        text = f"{name} of {rows}" if rows else name
        return (
            overflow_text(f"{text} is {exact:.6g}", made.dtype) if math.isfinite(exact) else f"{text} is {made.value}"
        )
    text = _equation(name, made.operands)
    if name == "convert_element_type" and math.isfinite(exact):
        return overflow_text(f"{_operand(made.operands[0])}", made.dtype)
    if math.isfinite(exact):
        return overflow_text(f"{text} = {exact:.6g}", made.dtype)
    return f"{text}, {reason(name, values, exact)}"


def reason(name: str, values: list[float], exact: float) -> str:
    """The reason why an operator gives no finite number for its operands: "a division by zero"."""
    infinite = [value for value in values if math.isinf(value)]
    if name in ("div", "true_divide") and len(values) > 1 and values[1] == 0:
        return "a division by zero" if values[0] else "zero divided by zero"
    if name in ("reciprocal", "rsqrt") and values[0] == 0:
        return "a division by zero"
    if name == "mul" and infinite and 0 in values:
        return "zero times infinity"
    if name in ("add", "sub") and len(infinite) > 1 and math.isnan(exact):
        return "the difference of two infinities"
    if name == "pow" and values[0] == 0 and not math.isnan(exact):
        return "a division by zero"
    if name in ("exp", "expm1", "cosh", "sinh", "pow") and not math.isnan(exact) and not infinite:
        return "too large for any number"
    return domain_error(name, values, exact).removeprefix("is ")


def computation(operator: str, operands: tuple[Operand, ...]) -> str:
    """ "ids[3] = 3000 * 1000000"."""
    return _equation(operator.split(".")[1], operands)


def _equation(name: str, operands: tuple[Operand, ...]) -> str:
    if name in _SIGNS and len(operands) == 2:
        return f" {_SIGNS[name]} ".join(_operand(operand) for operand in operands)
    return f"{name}({', '.join(_operand(operand) for operand in operands)})"


def _operand(operand: Operand) -> str:
    text = operand.value or "nan"
    is_exact = text.lstrip("-").isdigit() or text in ("True", "False")
    value = text if is_exact else f"{float(text):.6g}"
    if not operand.name:
        return value
    place = f"[{', '.join(map(str, operand.index))}]" if operand.index else ""
    return f"{operand.name}{place} = {value}"


def _row(operand: Operand) -> str:
    among = [
        f"{count} {word}"
        for count, word in (
            (operand.plus_infinities, "+Inf"),
            (operand.minus_infinities, "-Inf"),
            (operand.zeros, "zero" if operand.zeros == 1 else "zeros"),
        )
        if count
    ]
    return f"{operand.count} elements of {operand.name}" + (f" ({', '.join(among)} among them)" if among else "")
