"""An element of an operand that makes an operator fail: an index out of bounds, an integer divisor of zero."""

from __future__ import annotations

from aoti_debug.compare.protocol.origin import Operand
from aoti_debug.lazy.dataclass import dataclass


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
