"""The exception that eager raises for inputs that it does not compute with, as plain data."""

from __future__ import annotations

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.protocol.bad_operand import BadOperand


@dataclass(frozen=True)
class InputElement:
    """An element of an input, a weight or a buffer of the exported program.

    Attributes:
        name: of the input, or the attribute of the model.
        index: its coordinates.
        number: its row-major index.
        value: its value as text.
    """

    name: str
    index: tuple[int, ...]
    number: int
    value: str


@dataclass(frozen=True)
class Refusal:
    """The exception that the exported program raises in eager, called with the inputs of the run.

    Attributes:
        error: the type of the exception: "IndexError".
        words: the first line of its text.
        node, operator: what raised it, in the graph of the exported program; "" where that is not known.
        bad: the element of an operand that the operator cannot use; None where none was seen.
        inputs: the elements of inputs and weights that this one was computed from; () where they are not known.
        call: the number of the call, from 0.
    """

    error: str
    words: str
    node: str = ""
    operator: str = ""
    bad: BadOperand | None = None
    inputs: tuple[InputElement, ...] = ()
    call: int = 0
