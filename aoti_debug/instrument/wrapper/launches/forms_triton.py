"""Triton kernels: calls of the generated `call_*` functions."""

from __future__ import annotations

import re

from aoti_debug.instrument.wrapper.callees.prototypes import Param
from aoti_debug.instrument.wrapper.callees.triton_functions import TritonFunction
from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression
from aoti_debug.instrument.wrapper.launches import slots
from aoti_debug.instrument.wrapper.launches.slots import FunctionContext, LaunchForm, ParsedLaunch, Slot
from aoti_debug.package.manifest import Form, Kind, Role

_PREFIX = "call_"
_PLUMBING = frozenset({"device_idx_", "stream_", "kernels_", "cubin_dir_"})


def read(call: CallExpression, context: FunctionContext) -> ParsedLaunch | None:
    """Reads a call of a generated `call_*` function; None for other calls.

    `call_triton_poi_fused_0(arg0_1, buf0, 4096L, this->device_idx_, stream, kernels, this->cubin_dir_);`
    """
    function = context.triton.get(call.callee)
    if function is None or len(call.arguments) > len(function.params):
        return None
    generated = call.callee.startswith((_PREFIX + "triton_", _PREFIX + "multi_kernel_"))
    arguments = [
        slot
        for i, (argument, param) in enumerate(zip(call.arguments, function.params, strict=False))
        if (slot := _slot(argument.text, i, param, function, generated=generated)) is not None
    ]
    launches = (function.launch.kernel,) if function.launch else ()
    return ParsedLaunch(Kind.TRITON, call.callee.removeprefix(_PREFIX), tuple(arguments), launches=launches)


def _slot(text: str, value: int, param: Param, function: TritonFunction, *, generated: bool) -> Slot | None:
    if param.name in _PLUMBING:
        return None
    if not param.ctype.endswith("&"):
        return slots.number(text, value=value, form=Form.SCALAR, ctype=param.ctype, param=param.name)
    if not param.ctype.startswith("const"):  # a TMA descriptor
        return slots.number(text, value=value, form=Form.OPAQUE, ctype="", param=param.name)
    role = _role(param.name, function) if generated else Role.UNKNOWN
    return slots.tensor(text, value=value, form=Form.TENSOR, role=role, param=param.name)


def _role(param: str, function: TritonFunction) -> Role:
    if param.startswith(("in_out_ptr", "ws_ptr")) or param in function.mutated:
        return Role.INOUT
    if param.startswith("out_ptr"):
        return Role.OUT
    return Role.IN if param.startswith(("in_ptr", "arg_")) else Role.UNKNOWN


FORMS = (LaunchForm(re.compile(r"call_\w+"), read),)
