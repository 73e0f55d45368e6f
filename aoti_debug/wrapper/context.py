"""The input and the result of the readers of launch forms, besides the call itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aoti_debug.manifest import Kind, Operand
from aoti_debug.wrapper.prototypes import Prototype
from aoti_debug.wrapper.proxy import Node
from aoti_debug.wrapper.slots import Slot
from aoti_debug.wrapper.triton import TritonFunction
from aoti_debug.wrapper.variables import Variables


@dataclass(frozen=True)
class FunctionContext:
    """Facts about the wrapper, and about the function that contains the call.

    Attributes:
        shims: prototypes of the C shim, from torch's headers.
        externs: prototypes that the wrapper declares itself: C++ kernels, CUTLASS kernels, shims of custom operators.
        triton: the `call_*` functions by name.
        proxy: the proxy executor's operators by index.
        operators: operators of C-shim functions, by suffix (operators.shim_operators) or by name (declared_shims).
        schemas: schemas by operator.
        variables: of the function.
    """

    shims: Mapping[str, Prototype]
    externs: Mapping[str, Prototype]
    triton: Mapping[str, TritonFunction]
    proxy: tuple[Node, ...]
    operators: Mapping[str, str]
    schemas: Mapping[str, str]
    variables: Variables


@dataclass(frozen=True)
class Reading:
    """A call that was recognised as a launch."""

    kind: Kind
    kernel: str
    slots: tuple[Slot, ...]
    op: str = ""
    launches: tuple[str, ...] = field(default=())
    operands: tuple[Operand, ...] = ()
    results: tuple[str, ...] = ()
