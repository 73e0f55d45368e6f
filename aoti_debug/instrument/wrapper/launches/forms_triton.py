"""Triton kernels: calls of the generated `call_*` functions."""

from __future__ import annotations

import re

from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression
from aoti_debug.instrument.wrapper.cpp_syntax.expressions import UnreadError
from aoti_debug.instrument.wrapper.cpp_syntax.functions import STREAM
from aoti_debug.instrument.wrapper.launches import slots
from aoti_debug.instrument.wrapper.launches.c_functions import Param, number_type
from aoti_debug.instrument.wrapper.launches.slots import FunctionContext, LaunchForm, ParsedLaunch, Slot
from aoti_debug.instrument.wrapper.launches.triton_functions import STREAM_TYPE, TritonFunction
from aoti_debug.package.manifest import CType, Form, Kind, Role

_PREFIX = "call_"
# What every call passes beside the arguments of its kernel: type of the parameter, and the expressions that are passed.
_PLUMBING = {
    "device_idx_": (r"int32_t", r"this->device_idx_"),
    "stream_": (STREAM_TYPE.pattern, STREAM),
    "kernels_": (r"kernels_type_&", r"kernels"),
    "cubin_dir_": (r"const std::optional<std::string>&", r"this->cubin_dir_"),
}
_HAS_DEFAULT = "cubin_dir_"


def read(call: CallExpression, context: FunctionContext) -> ParsedLaunch | None:
    """Reads a call of a generated `call_*` function; None for other calls.

    `call_triton_poi_fused_0(arg0_1, buf0, 4096L, this->device_idx_, stream, kernels, this->cubin_dir_);`
    """
    function = context.triton.get(call.callee)
    if function is None:
        return None
    if function.unread:
        raise UnreadError(function.unread)
    params = function.params
    if len(call.arguments) == len(params) - 1 and params[-1].name == _HAS_DEFAULT:
        params = params[:-1]
    if len(call.arguments) != len(params):
        raise UnreadError(f"{len(call.arguments)} arguments for {len(params)} parameters of {call.callee}")
    arguments = [
        slot
        for i, (argument, param) in enumerate(zip(call.arguments, params, strict=True))
        if (slot := _slot(argument.text, i, param, function)) is not None
    ]
    launches = (function.launch.kernel,) if function.launch else ()
    return ParsedLaunch(Kind.TRITON, call.callee.removeprefix(_PREFIX), tuple(arguments), launches=launches)


def _slot(text: str, value: int, param: Param, function: TritonFunction) -> Slot | None:
    if param.name in _PLUMBING:
        ctype, passed = _PLUMBING[param.name]
        if not re.fullmatch(ctype, param.ctype) or not re.fullmatch(passed, text):
            raise UnreadError(f"{text} for the parameter {param.ctype} {param.name} of {function.name}")
        return None
    if number_type(param.ctype) is not CType.NONE:
        return slots.number(text, value=value, form=Form.SCALAR, ctype=param.ctype, param=param.name)
    if f"{param.name}.m" in (passed.name for passed in function.kernel_params):  # a TMA descriptor
        return slots.number(text, value=value, form=Form.OPAQUE, ctype="", param=param.name)
    if param.ctype == f"const {param.name}_type_&":
        role = _role(param.name, function) if function.generated else Role.UNKNOWN
        return slots.tensor(text, value=value, form=Form.TENSOR, role=role, param=param.name)
    raise UnreadError(f"parameter {param.ctype} {param.name} of {function.name}")


def _role(param: str, function: TritonFunction) -> Role:
    if param in function.mutated or re.match(r"(?:in_out_ptr|ws_ptr)\d*\Z", param):
        return Role.INOUT
    if re.match(r"out_ptr\d*\Z", param):
        return Role.OUT
    return Role.IN if re.match(r"in_ptr\d*\Z|arg_\w+\Z", param) else Role.UNKNOWN


FORMS = (LaunchForm(re.compile(r"call_\w+"), read),)
