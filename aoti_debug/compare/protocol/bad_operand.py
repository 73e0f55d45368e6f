"""An element of an operand that makes an operator fail: an index out of bounds, an integer divisor of zero."""

from __future__ import annotations

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.protocol.origin import Operand


@dataclass(frozen=True)
class Computed:
    """The elementwise operator that computed a number, in the same launch, and the elements that it computed it from.

    Attributes:
        node: "add_1".
        operator: "aten.add.Tensor".
        dtype: of the result.
        exact: the result for the same operands in float64; "nan" where the operator has none.
    """

    node: str
    operator: str
    dtype: str
    operands: tuple[Operand, ...]
    exact: str


@dataclass(frozen=True)
class BadSource:
    """The element of a recorded value that a bad element comes from, found by evaluating the graph with other numbers.

    Attributes:
        node: the node whose value it is; a graph's input where that was recorded.
        element: its row-major index in it; None if only several elements together make the bad one.
        index: its coordinates; () for those several.
        value: of the element; "" without one.
        instead: a number with which, in its place, the element would not be bad; "" for the bad element itself.
        alone: False if another element makes the same element bad, too.
        recorded: the launch that read or wrote the value, and its argument: "0.2", "buf1".
    """

    node: str
    element: int | None
    index: tuple[int, ...]
    value: str
    instead: str
    alone: bool
    recorded: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class BadOperand:
    """The first element, in the order of the graph, of an operand that an operator cannot use.

    Attributes:
        node: the operator's node: "index_1".
        operator: "aten.index.Tensor".
        name: the operand's node: "arg1_1".
        index: the coordinates of the element in it.
        value: of the element.
        count: how many elements of the operand are bad.
        table: the node that is indexed; "" for a divisor.
        dimension, size: the dimension of the table that is indexed, and its size.
        computed: what computed the element in this launch; None if the launch read it.
        dividend: the number that is divided, where the divisor is -1 and the quotient too large for its dtype; else "".
        source: the value before the launch that it comes from; None if that cannot be told.
    """

    launch: str
    node: str
    operator: str
    name: str
    index: tuple[int, ...]
    value: int
    count: int
    table: str = ""
    dimension: int = 0
    size: int = 0
    computed: Computed | None = None
    dividend: str = ""
    source: BadSource | None = None

    @property
    def text(self) -> str:
        """ "aten.index.Tensor: index[5] is 1000000, table has 1000 rows"."""
        text = f"{self.operator}: {element_text(self.name, self.index)} is {self.value}"
        if self.table:
            rows = f"{self.size} rows" if self.dimension == 0 else f"size {self.size} in dimension {self.dimension}"
            text += f", {self.table} has {rows}"
        if self.dividend:
            text += f", and {self.dividend} / {self.value} does not fit into its dtype"
        return text + (f" ({self.count} elements are bad)" if self.count > 1 else "")


def element_text(name: str, index: tuple[int, ...]) -> str:
    """ "rows[2, 5]"; the name alone of a tensor without dimensions."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name
