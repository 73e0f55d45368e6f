"""Calls through the proxy executor: operators without a C shim, whose arguments are in two flat arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aoti_debug.instrument.wrapper.cpp_syntax import expressions
from aoti_debug.instrument.wrapper.cpp_syntax.calls import PROXY, CallExpression
from aoti_debug.instrument.wrapper.cpp_syntax.expressions import UnreadError
from aoti_debug.instrument.wrapper.launches import slots
from aoti_debug.instrument.wrapper.launches.c_functions import Flat, ProxyNode, mutated, qualified, schema_of
from aoti_debug.instrument.wrapper.launches.slots import FunctionContext, LaunchForm, ParsedLaunch, Slot
from aoti_debug.package.manifest import Form, Kind, Role

_INTS, _TENSORS = 3, 5  # positions of the two arrays
_ARGUMENTS = 6


def read(call: CallExpression, context: FunctionContext) -> ParsedLaunch | None:
    """Reads a call through the proxy executor; None for other calls.

    `aoti_torch_proxy_executor_call_function(proxy_executor, 0, 2, ints.data(), 3, tensors.data())`
    """
    if call.callee != PROXY:
        return None
    declared = context.shims.get(PROXY)
    if len(call.arguments) != _ARGUMENTS or (declared and len(declared.params) != _ARGUMENTS):
        raise UnreadError(f"arguments of {PROXY}")
    index = call.arguments[1].text
    ints = expressions.elements(call.arguments[_INTS].text)
    tensors = expressions.elements(call.arguments[_TENSORS].text)
    if ints is None or tensors is None or not index.isdigit():
        raise UnreadError(f"arguments of {PROXY}")
    node = _node(int(index), ints, tensors, context)
    if node is None:
        name = _name_of(call, int(index))
        written = _fresh(tensors, context)
        entries = [Flat("")] * len(tensors)
        roles = [Role.OUT if n in written else Role.UNKNOWN for n in range(len(tensors))]
        numbers = [Flat("")] * len(ints)
    else:
        name = qualified(node.target)
        entries = [*node.inputs, *node.outputs]
        roles = _roles(node, tensors, mutated(schema_of(name, context.schemas)))
        numbers = list(node.numbers)
    arguments = [_tensor(t, n, e, r) for n, (t, e, r) in enumerate(zip(tensors, entries, roles, strict=True))]
    arguments += [_integer(t, n, e) for n, (t, e) in enumerate(zip(ints, numbers, strict=True))]
    operands, results = ((), ()) if node is None else (node.operands, node.results)
    return ParsedLaunch(Kind.PROXY, name, tuple(arguments), op=name, operands=operands, results=results)


def _node(index: int, ints: Sequence[str], tensors: Sequence[str], context: FunctionContext) -> ProxyNode | None:
    """Returns the JSON's node of a call; None if it does not match: `_const_run_impl` counts another list."""
    if index >= len(context.proxy):
        return None
    node = context.proxy[index]
    entries = (*node.inputs, *node.outputs)
    if len(entries) != len(tensors) or len(node.numbers) != len(ints):
        return None
    names = [expression.variable if (expression := expressions.tensor(text)) else "" for text in tensors]
    same = all(_is_same(name, entry.buffer, context) for name, entry in zip(names, entries, strict=True))
    return node if same else None


def _is_same(name: str, buffer: str, context: FunctionContext) -> bool:
    """True if a variable may hold a buffer of the JSON: it is of the same name, behind that of a branch, or a view."""
    if not name or not buffer:
        return True
    return name.endswith(buffer) or slots.resolve_alias(name, context.variables.bases).endswith(
        slots.resolve_alias(buffer, context.variables.bases)
    )


def _roles(node: ProxyNode, tensors: Sequence[str], written: frozenset[str]) -> list[Role]:
    inputs = [Role.INOUT if entry.param.partition("[")[0] in written else Role.IN for entry in node.inputs]
    keys = {expression.key for text in tensors[: len(inputs)] if (expression := expressions.tensor(text))}
    outputs = []
    for text in tensors[len(inputs) :]:
        expression = expressions.tensor(text)
        outputs.append(Role.INOUT if expression and expression.key in keys else Role.OUT)
    return inputs + outputs


def _fresh(tensors: Sequence[str], context: FunctionContext) -> set[int]:
    names = [expression.variable if (expression := expressions.tensor(text)) else "" for text in tensors]
    return {n for n, name in enumerate(names) if name in context.variables.uninitialised}


def _name_of(call: CallExpression, index: int) -> str:
    """Returns the operator from Inductor's comments: `Original ATen: [aten.complex]`, or the handle's name."""
    if len(call.notes.aten) == 1:
        return qualified(call.notes.aten[0].replace(".", "::", 1))
    return call.notes.handle.rpartition(":")[0] or f"operator_{index}"


def _tensor(text: str, element: int, entry: Flat, role: Role) -> Slot:
    return slots.tensor(text, value=_TENSORS, form=Form.LIST, role=role, param=entry.param, element=element)


def _integer(text: str, element: int, entry: Flat) -> Slot:
    return slots.number(text, value=_INTS, form=Form.INTS, ctype="int64_t", param=entry.param, element=element)


FORMS = (LaunchForm(re.compile(PROXY), read),)
