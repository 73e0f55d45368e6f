"""Calls of generated C++ kernels and CUTLASS kernels: raw pointers, each with the tensor that it comes from."""

from __future__ import annotations

import re

from aoti_debug.instrument.wrapper.callees.prototypes import Param, Prototype
from aoti_debug.instrument.wrapper.cpp_syntax import expressions
from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression
from aoti_debug.instrument.wrapper.launches import slots
from aoti_debug.instrument.wrapper.launches.slots import FunctionContext, LaunchForm, ParsedLaunch, Slot
from aoti_debug.package.manifest import Arg, Form, Kind, Role

_MEMBER = "kernels."


def read(call: CallExpression, context: FunctionContext) -> ParsedLaunch | None:
    """Reads a call of a C++ kernel; None for other calls.

    `cpp_fused_relu_1((const float*)(buf7.data_ptr()), (float*)(buf8.data_ptr()), s77);`
    """
    if call.callee.startswith("aoti_torch_") or call.callee not in context.externs:
        return None
    arguments = _slots(call, context.externs[call.callee])
    return ParsedLaunch(Kind.CPP, call.callee, arguments) if arguments is not None else None


def read_cutlass(call: CallExpression, context: FunctionContext) -> ParsedLaunch | None:
    """Reads a call of a CUTLASS kernel; None for other calls.

    `kernels.cuda_fused_mm_0((const void*)arg0_1.data_ptr(), (int)64, (size_t*)nullptr, stream);`
    """
    if not call.callee.startswith(_MEMBER):
        return None
    name = call.callee.removeprefix(_MEMBER)
    unnamed = Prototype(name, tuple(Param("", "") for _ in call.arguments))
    arguments = _slots(call, context.externs.get(name, unnamed))
    return ParsedLaunch(Kind.CUTLASS, name, arguments) if arguments is not None else None


def _slots(call: CallExpression, prototype: Prototype) -> tuple[Slot, ...] | None:
    if len(prototype.params) != len(call.arguments):
        return None
    return tuple(
        slot
        for i, (argument, param) in enumerate(zip(call.arguments, prototype.params, strict=True))
        if (slot := _slot(argument.text, i, param)) is not None
    )


def _slot(text: str, value: int, param: Param) -> Slot | None:
    if pointer := expressions.pointer(text):
        return _pointer(text, value, param, pointer)
    if converted := expressions.cast(text):
        ctype, inner = converted
        return slots.number(inner, value=value, form=Form.SCALAR, ctype=ctype, param=param.name)
    if text == "stream" or param.ctype.endswith("Stream_t"):
        return None
    return slots.number(text, value=value, form=Form.SCALAR, ctype=param.ctype, param=param.name)


def _pointer(text: str, value: int, param: Param, pointer: expressions.Pointer) -> Slot | None:
    if pointer.tensor is None:
        return None
    tensor = pointer.tensor
    return Slot(
        Arg(
            name=tensor.name,
            param=param.name,
            form=Form.POINTER,
            role=_role(pointer.ctype, param.name),
            ctype=param.ctype or pointer.ctype,
            text=text,
            value=value,
            base=tensor.variable,
        ),
        key=tensor.key,
    )


def _role(ctype: str, param: str) -> Role:
    if re.match(r"const\b", ctype):
        return Role.IN
    return Role.INOUT if param.startswith("in_out_ptr") else Role.OUT


FORMS = (
    LaunchForm(re.compile(r"cpp_fused\w*"), read),
    LaunchForm(re.compile(r"kernels\.\w+"), read_cutlass),
)
