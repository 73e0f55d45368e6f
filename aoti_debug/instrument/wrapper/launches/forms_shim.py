"""Calls of C-shim functions: out variants, allocating calls, in-place calls, item and clone."""

from __future__ import annotations

import re

from aoti_debug.instrument.wrapper.cpp_syntax import expressions
from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression
from aoti_debug.instrument.wrapper.cpp_syntax.expressions import UnreadError
from aoti_debug.instrument.wrapper.launches import slots
from aoti_debug.instrument.wrapper.launches.c_functions import (
    NUMBERS,
    Param,
    Prototype,
    form_of,
    is_output,
    mutated,
    number_type,
    operator_of,
    schema_of,
)
from aoti_debug.instrument.wrapper.launches.slots import FunctionContext, LaunchForm, ParsedLaunch, Slot
from aoti_debug.package.manifest import CType, Form, Kind, Role

_OUT_PARAM = re.compile(r"out\d*\Z")
_INPLACE = re.compile(r"aoti_torch_(?:\w+?_)?(?:index_put|scatter)\w*_out\Z|aoti_torch_(?:copy|zero)_\Z")
_INPLACE_OPERATOR = re.compile(r"[a-z\d]_(?:_(?:float|Tensor|Scalar|p))?\Z")  # bernoulli__float, all_reduce_
_DEVICE = re.compile(r"aoti_torch_(?:cpu|cuda|xpu)_")
_OUTPUT_HANDLE = re.compile(r"&\w+_handle\Z")
_POINTER_FORMS = (Form.OUTPUT_SLOT, Form.OPTIONAL)
_READERS = frozenset({"aoti_torch_check_inf_and_nan"})  # that only read tensors, and return none

# Functions of the C shim that manage tensors and start nothing on a device.
_NO_LAUNCH = (
    r"(?:"
    r"empty_strided\w*|_alloc_from_pool|as_strided|_reinterpret_tensor|new_\w+|assign_tensors\w*|\w+_view_dtype"
    r"|get_\w+|is_\w+|delete_\w+|create_\w+|dtype_\w+|device_type_\w+|layout_\w+|memory_format_\w+"
    r"|grad_mode_\w+|print_tensor_handle|save_tensor_handle|warn|check|\w+_to_ivalue|scalar_to_tensor_\w+"
    r"|record_function_\w+|\w+_guard_set_index|stream_id|\w*caching_allocator_\w+|abi_version"
    r")"
)


def read(call: CallExpression, context: FunctionContext) -> ParsedLaunch | None:
    """Reads a call of a C-shim function; None for other calls.

    `aoti_torch_cpu_addmm_out(buf0, bias, arg0_1, weight_view, 1L, 1L)`
    """
    callee = call.callee
    prototype = context.shims.get(callee) or context.externs.get(callee)
    declared = prototype is not None
    if prototype is None and _DEVICE.match(callee):
        prototype = _guess_prototype(call, context)
    if prototype is None:
        return None
    if len(prototype.params) != len(call.arguments):
        given, taken = len(call.arguments), len(prototype.params)
        raise UnreadError(f"{given} arguments for {taken} parameters of {callee}")
    if not any("AtenTensorHandle" in param.ctype for param in prototype.params):
        return None
    op = operator_of(callee, context.operators)
    kind = Kind.CUSTOM_SHIM if callee in context.externs else kind_of(callee, prototype)
    schema = schema_of(op, context.schemas) if op else ""
    by_schema = mutated(schema)
    roles = written(kind, prototype, by_schema)
    returns = any(_OUTPUT_HANDLE.match(argument.text) for argument in call.arguments)
    unnamed = by_schema - {param.name for param in prototype.params}
    if (
        not declared
        or (kind is Kind.CUSTOM_SHIM and (unnamed or not (schema or returns)))
        or _hidden_output(call, kind)
    ):
        # It may write to some of its arguments, and it is not known which.
        roles = {param.name: Role.UNKNOWN for param in prototype.params}
    arguments: list[Slot] = []
    for i, param in enumerate(prototype.params):
        arguments += _argument(call, i, param, roles, context)
    return ParsedLaunch(kind, callee, tuple(arguments), op=op)


def _hidden_output(call: CallExpression, kind: Kind) -> bool:
    """True if a function that is to write a result has neither an argument nor a parameter that says where."""
    if kind is not Kind.SHIM_ALLOC or call.callee in _READERS:
        return False
    return not any(argument.text.startswith("&") for argument in call.arguments)


def kind_of(callee: str, prototype: Prototype) -> Kind:
    """Returns the kind of a function of the C shim."""
    if callee.startswith("aoti_torch_item_"):
        return Kind.ITEM
    if callee in ("aoti_torch_clone", "aoti_torch_clone_preserve_strides"):
        return Kind.CLONE
    if _INPLACE.match(callee) or _INPLACE_OPERATOR.search(callee):
        return Kind.SHIM_INPLACE
    first = prototype.params[0] if prototype.params else Param("", "")
    return Kind.SHIM_OUT if first.ctype == "AtenTensorHandle" and _OUT_PARAM.match(first.name) else Kind.SHIM_ALLOC


def written(kind: Kind, prototype: Prototype, by_schema: frozenset[str] = frozenset()) -> dict[str, Role]:
    """Returns the roles of the parameters that a function of the C shim writes to, by name.

    Args:
        by_schema: parameters that the operator mutates by its schema.
    """
    roles = dict.fromkeys(by_schema, Role.INOUT)
    handles = [p.name for p in prototype.params if p.ctype == "AtenTensorHandle"]
    if kind is Kind.SHIM_INPLACE and handles:
        # index_put and scatter are called with one tensor as `out` and as `self`.
        roles[handles[0]] = Role.INOUT
    elif kind is Kind.SHIM_OUT:
        roles |= {name: Role.OUT for name in handles if _OUT_PARAM.match(name)}
    return roles


def _argument(
    call: CallExpression, i: int, param: Param, roles: dict[str, Role], context: FunctionContext
) -> list[Slot]:
    text = call.arguments[i].text
    form = _form(text, param)
    role = roles.get(param.name, Role.IN)
    if form in (Form.LIST, Form.OPTIONAL_LIST):
        items = expressions.elements(text)
        if items is None and not expressions.is_null(text):
            raise UnreadError(f"list of tensors {text}")
        return [
            slots.tensor(item, value=i, form=form, role=role, ctype=param.ctype, param=_item(param, n), element=n)
            for n, item in enumerate(items or ())
        ]
    if form in _POINTER_FORMS:
        role = Role.OUT if form is Form.OUTPUT_SLOT else role
        return [slots.tensor(text, value=i, form=form, role=role, ctype=param.ctype, param=param.name)]
    if form is Form.TENSOR:
        return [slots.tensor(text, value=i, form=form, role=role, ctype=param.ctype, param=param.name)]
    if form is Form.INTS:
        return [
            slots.number(item, value=i, form=form, ctype=param.ctype, param=_item(param, n), element=n)
            for n, item in enumerate(expressions.elements(text) or ())
        ]
    return _number(text, i, param, form, context)


def _item(param: Param, n: int) -> str:
    return f"{param.name}[{n}]" if param.name else ""


def _form(text: str, param: Param) -> Form:
    """Returns the form of a parameter; for a pointer to a handle it depends on the argument's expression."""
    form = form_of(param)
    if form in _POINTER_FORMS:
        if text.startswith("&temporary_reference("):
            return Form.OPTIONAL
        if text.startswith("&") and expressions.tensor(text) is not None and "(" not in text:
            return Form.OUTPUT_SLOT
    return form


def _number(text: str, i: int, param: Param, form: Form, context: FunctionContext) -> list[Slot]:
    if param.name.endswith("_len_") or param.name == "num_indices" or "Generator" in param.ctype:
        return []
    role, referent = Role.NONE, CType.NONE
    if form is Form.SCALAR_REF:
        referent = number_type(param.ctype.removesuffix("*"))
        role = Role.OUT if is_output(param) else Role.NONE
    elif form is Form.OPAQUE:
        if expressions.is_null(text):
            return []
        declared = context.variables.types.get(expressions.variable(text), "")
        if text.startswith("&") and declared in NUMBERS:
            form, referent = Form.SCALAR_REF, NUMBERS[declared]
    elif form is Form.SCALAR and text in context.variables.tensors:
        raise UnreadError(f"{text} for the parameter {param.ctype} {param.name}")
    slot = slots.number(text, value=i, form=form, ctype=param.ctype, param=param.name, role=role, referent=referent)
    return [slot]


def _guess_prototype(call: CallExpression, context: FunctionContext) -> Prototype | None:
    """Guesses the prototype of a function that no header declares from its argument expressions."""
    params = [_guess(argument.text, context) for argument in call.arguments]
    known = tuple(param for param in params if param is not None)
    return Prototype(call.callee, known) if len(known) == len(params) else None


def _guess(text: str, context: FunctionContext) -> Param | None:
    if text.startswith("&temporary_reference("):
        return Param("AtenTensorHandle*", "")
    if text.startswith("&") and text.endswith("_handle"):
        return Param("AtenTensorHandle*", "ret")
    if text.startswith("&") or expressions.is_null(text):
        return Param("void*", "")
    if text.startswith('"'):
        return Param("const char*", "")
    if expressions.elements(text) is not None:
        return Param("const AtenTensorHandle*" if "AtenTensorHandle" in text else "const int64_t*", "")
    if re.match(r"-?\d+L*\Z", text):
        return Param("int64_t", "")
    if re.match(r"-?[\d.]", text):
        return Param("double", "")
    expression = expressions.tensor(text)
    return Param("AtenTensorHandle", "") if expression and expression.variable in context.variables.tensors else None


FORMS = (LaunchForm(re.compile(rf"aoti_torch_(?!{_NO_LAUNCH}\Z)\w+"), read),)
