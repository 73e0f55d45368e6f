"""The model's own names of its inputs, in place of those that the graph has for them: "index" for "arg1_1"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aoti_debug.compare.protocol.bad_operand import BadOperand
from aoti_debug.compare.protocol.origin import Made, Operand, Origin


def of_bad_operand(bad: BadOperand, names: Mapping[str, str]) -> BadOperand:
    """The bad operand with the names that the model gives its inputs."""
    computed = bad.computed
    if computed is not None:
        computed = replace(computed, operands=_operands(computed.operands, names))
    return replace(bad, name=names.get(bad.name, bad.name), table=names.get(bad.table, bad.table), computed=computed)


def of_origin(origin: Origin, names: Mapping[str, str]) -> Origin:
    """The origin of a value with the names that the model gives its inputs."""
    became = None if origin.became is None else _made(origin.became, names)
    return replace(origin, made=_made(origin.made, names), became=became)


def _made(made: Made, names: Mapping[str, str]) -> Made:
    return replace(made, operands=_operands(made.operands, names))


def _operands(operands: tuple[Operand, ...], names: Mapping[str, str]) -> tuple[Operand, ...]:
    return tuple(replace(operand, name=names.get(operand.name, operand.name)) for operand in operands)
