"""Calls of generated C++ kernels and CUTLASS kernels: raw pointers, each with the tensor that it comes from."""

from __future__ import annotations

import re

from aoti_debug.instrument.wrapper.cpp_syntax import expressions
from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression
from aoti_debug.instrument.wrapper.cpp_syntax.expressions import UnreadError
from aoti_debug.instrument.wrapper.cpp_syntax.functions import STREAM
from aoti_debug.instrument.wrapper.launches import slots
from aoti_debug.instrument.wrapper.launches.c_functions import Param, Prototype, number_type
from aoti_debug.instrument.wrapper.launches.slots import FunctionContext, LaunchForm, ParsedLaunch, Slot
from aoti_debug.package.manifest import Arg, CType, Form, Kind, Role

_MEMBER = "kernels."
# How Inductor names what a kernel writes; templates have names of their own.
_WRITTEN = re.compile(r"out_ptr\d*\Z|Y\d*\Z|output\Z")
_READ_AND_WRITTEN = re.compile(r"in_out_ptr\d*\Z|workspace\Z")


def read(call: CallExpression, context: FunctionContext) -> ParsedLaunch | None:
    """Reads a call of a C++ kernel; None for other calls.

    `cpp_fused_relu_1((const float*)(buf7.data_ptr()), (float*)(buf8.data_ptr()), s77);`
    """
    if call.callee.startswith("aoti_torch_") or call.callee not in context.externs:
        return None
    return ParsedLaunch(Kind.CPP, call.callee, _slots(call, context.externs[call.callee]))


def read_cutlass(call: CallExpression, context: FunctionContext) -> ParsedLaunch | None:
    """Reads a call of a CUTLASS kernel; None for other calls.

    `kernels.cuda_fused_mm_0((const void*)arg0_1.data_ptr(), (int)64, (size_t*)nullptr, stream);`
    """
    if not call.callee.startswith(_MEMBER):
        return None
    name = call.callee.removeprefix(_MEMBER)
    unnamed = Prototype(name, tuple(Param("", "") for _ in call.arguments))
    return ParsedLaunch(Kind.CUTLASS, name, _slots(call, context.externs.get(name, unnamed)))


def _slots(call: CallExpression, prototype: Prototype) -> tuple[Slot, ...]:
    if len(prototype.params) != len(call.arguments):
        given, taken = len(call.arguments), len(prototype.params)
        raise UnreadError(f"{given} arguments for {taken} parameters of {prototype.name}")
    return tuple(
        slot
        for i, (argument, param) in enumerate(zip(call.arguments, prototype.params, strict=True))
        if (slot := _slot(argument.text, i, param)) is not None
    )


def _slot(text: str, value: int, param: Param) -> Slot | None:
    if pointer := expressions.pointer(text):
        return _pointer(text, value, param, pointer)
    if re.fullmatch(STREAM, text) and (not param.ctype or param.ctype.endswith("Stream_t")):
        return None
    ctype, inner = expressions.cast(text) or (param.ctype, text)
    if number_type(ctype) is CType.NONE or (param.ctype and number_type(param.ctype) is CType.NONE):
        raise UnreadError(f"{text} for the parameter {param.ctype} {param.name}".rstrip())
    return slots.number(inner, value=value, form=Form.SCALAR, ctype=ctype, param=param.name)


def _pointer(text: str, value: int, param: Param, pointer: expressions.Pointer) -> Slot | None:
    if param.ctype and not param.ctype.endswith("*"):
        raise UnreadError(f"{text} for the parameter {param.ctype} {param.name}".rstrip())
    if pointer.tensor is None:
        if not expressions.is_null(pointer.tensor_text):
            raise UnreadError(f"pointer {text}")
        return None
    tensor = pointer.tensor
    return Slot(
        Arg(
            name=tensor.name,
            param=param.name,
            form=Form.POINTER,
            role=_role(param.ctype or pointer.ctype, param.name),
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
    return Role.OUT if _WRITTEN.match(param) else Role.INOUT if _READ_AND_WRITTEN.match(param) else Role.UNKNOWN


FORMS = (
    LaunchForm(re.compile(r"cpp_fused\w*"), read),
    LaunchForm(re.compile(r"kernels\.\w+"), read_cutlass),
)
