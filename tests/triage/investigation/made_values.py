"""What operators made of which numbers, for tests of their words."""

from __future__ import annotations

from aoti_debug.compare.protocol.messages import Made, Operand


def number(name: str, value: str, *index: int) -> Operand:
    return Operand(name=name, index=index, value=value)


def made(operator: str, *operands: Operand, value: str = "nan", exact: str = "nan", dtype: str = "float32") -> Made:
    return Made(
        node="n",
        operator=operator,
        dtype=dtype,
        index=(0,),
        value=value,
        exact=exact,
        operands=operands,
        reduces=any(operand.count > 1 for operand in operands),
    )
