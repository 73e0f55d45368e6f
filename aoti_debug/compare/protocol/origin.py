"""The operator of a graph that made a non-finite element, with the numbers that it made it of, as plain data."""

from __future__ import annotations

from aoti_debug.base.lazy.dataclass import dataclass


@dataclass(frozen=True)
class TracedElement:
    """A non-finite element of an output of a launch, to be followed to the operator that made it.

    Attributes:
        element: its row-major index in the recorded tensor.
    """

    launch: str
    argument: str
    element: int


@dataclass(frozen=True)
class Operand:
    """An argument of an operator: the elements, or the number, that one element of its result was computed from.

    Attributes:
        name: the node; "" for a number in the call.
        index: the coordinates of the one element that counts; () for several, or for a number.
        value: of the one element, or the number; None for several elements.
        count: how many elements count.
        zeros, plus_infinities, minus_infinities: among them.
    """

    name: str
    index: tuple[int, ...] = ()
    value: str | None = None
    count: int = 1
    zeros: int = 0
    plus_infinities: int = 0
    minus_infinities: int = 0


@dataclass(frozen=True)
class Made:
    """A non-finite number that an operator made of others.

    Attributes:
        node: "div_1".
        operator: "aten.div.Tensor".
        dtype: of the result.
        index: its coordinates in the operator's result.
        value: "nan", "inf", "-inf".
        exact: what the operator gives for the same operands in float64.
        reduces: several elements of an operand count.
    """

    node: str
    operator: str
    dtype: str
    index: tuple[int, ...]
    value: str
    exact: str
    operands: tuple[Operand, ...]
    reduces: bool


@dataclass(frozen=True)
class Origin:
    """The operators that made an element of an output non-finite.

    Attributes:
        made: the first number on the way to it: made from finite ones, or NaN from an infinity that is meant.
        became: the NaN that an infinity in `made` turned into; None if that is itself what the output holds.
    """

    traced: TracedElement
    made: Made
    became: Made | None = None
