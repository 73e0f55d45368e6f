"""A launch form: how generated C++ writes a launch, what its reader is given, and what that returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.callees.prototypes import Prototype
from aoti_debug.instrument.wrapper.callees.proxy_operators import ProxyNode
from aoti_debug.instrument.wrapper.callees.triton_functions import TritonFunction
from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression
from aoti_debug.instrument.wrapper.cpp_syntax.functions import Variables
from aoti_debug.instrument.wrapper.launches.slots import Slot
from aoti_debug.package.manifest import Kind, ProxyArgument


@dataclass(frozen=True)
class FunctionContext:
    """Facts about the wrapper, and about the function that contains the call.

    Attributes:
        shims: prototypes of the C shim, from torch's headers.
        externs: prototypes that the wrapper declares itself: C++ kernels, CUTLASS kernels, shims of custom operators.
        triton: the `call_*` functions by name.
        proxy: the proxy executor's operators by index.
        operators: operators of C-shim functions, by suffix (shim_operators.shim_operators) or by name (declared_shims).
        schemas: schemas by operator.
        variables: of the function.
    """

    shims: Mapping[str, Prototype]
    externs: Mapping[str, Prototype]
    triton: Mapping[str, TritonFunction]
    proxy: tuple[ProxyNode, ...]
    operators: Mapping[str, str]
    schemas: Mapping[str, str]
    variables: Variables


@dataclass(frozen=True)
class ParsedLaunch:
    """A call that was parsed as a launch."""

    kind: Kind
    kernel: str
    slots: tuple[Slot, ...]
    op: str = ""
    launches: tuple[str, ...] = field(default=())
    operands: tuple[ProxyArgument, ...] = ()
    results: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchForm:
    """One way in which generated C++ writes a launch.

    Attributes:
        callees: the names of the functions that are called so.
        read: reads a call of such a function, or of one that the wrapper declares itself; None if it has another form.
    """

    callees: re.Pattern[str]
    read: Callable[[CallExpression, FunctionContext], ParsedLaunch | None]
