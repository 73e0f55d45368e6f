"""The arguments of a launch that calls an operator, in the order of the operator's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aoti_debug.package.manifest import Form, OperatorSchema, Parameter, Role, Site
from aoti_debug.package.recording.values import Absent, Number
from aoti_debug.runs.rundir.timeline import Argument
from aoti_debug.views.call_text.call import list_text

_DEFAULT = re.compile(r"(?P<name>\w+)=(?P<value>\[[^\]]*\]|[^,)\s]+)")
_WRITTEN = (Role.OUT,)


def operator_name(op: str) -> str:
    """The operator as eager calls it: "aten::addmm" of "aten.addmm.out", "aten::sort.stable" of "aten.sort.stable".

    An out variant has the name of the one that returns its results.
    """
    namespace, _, rest = op.replace("::", ".").partition(".")
    name, _, overload = rest.partition(".")
    overload = "" if overload in ("default", "out") else overload.removesuffix("_out")
    return f"{namespace}::{name}{'.' if overload else ''}{overload}"


def argument_texts(
    site: Site, schema: OperatorSchema | None, arguments: Sequence[Argument], tensor: Callable[[Argument], str]
) -> tuple[str, ...]:
    """The text of the arguments that an operator reads; such as have their default at the end are left out.

    Args:
        tensor: the text of a tensor.
    """
    given: dict[str, list[Argument]] = {}
    for argument in arguments:
        if argument.role not in _WRITTEN and argument.spec.form is not Form.OPAQUE:
            given.setdefault((argument.spec.param or argument.name).partition("[")[0], []).append(argument)
    if schema is None or given.keys().isdisjoint(parameter.name for parameter in schema.parameters):
        return tuple(_keyword(name, values, tensor) for name, values in given.items())
    constants = {operand.name: _constant(operand.value) for operand in site.operands}
    defaults = {match["name"]: match["value"] for match in _DEFAULT.finditer(schema.text.partition("->")[0])}
    positional: list[str] = []
    keywords: list[str] = []
    pending: list[str] = []  # positional arguments with their default, which count if another follows them
    for parameter in (p for p in schema.parameters if not p.out):
        text = _parameter(parameter, given, constants, tensor)
        default = defaults.get(parameter.name)
        is_default = text is None or (default is not None and _same(text, default))
        if parameter.keyword_only:
            keywords += [] if is_default else [f"{parameter.name}={text}"]
        elif is_default and default is not None:
            pending.append(text or default)
        else:
            positional += [*pending, text or "None"]
            pending = []
    return (*positional, *keywords)


def _parameter(
    parameter: Parameter,
    given: Mapping[str, Sequence[Argument]],
    constants: Mapping[str, str],
    tensor: Callable[[Argument], str],
) -> str | None:
    """The text of one argument; None if the call does not record it."""
    values = given.get(parameter.name)
    if not values:
        return constants.get(parameter.name)
    texts = [_text(value, tensor) for value in values]
    if parameter.type == "bool" and texts[0] in ("0", "1"):
        return str(texts[0] == "1")
    return list_text(texts) if _is_list(values) else texts[0]


def _keyword(name: str, values: Sequence[Argument], tensor: Callable[[Argument], str]) -> str:
    texts = [_text(value, tensor) for value in values]
    text = list_text(texts) if _is_list(values) else texts[0]
    return text if values[0].tensor is not None else f"{name}={text}"


def _is_list(values: Sequence[Argument]) -> bool:
    return len(values) > 1 or values[0].spec.param.endswith("]")


def _text(argument: Argument, tensor: Callable[[Argument], str]) -> str:
    if argument.layout is not None:
        return tensor(argument)
    value = argument.before if isinstance(argument.before, Number) else argument.after
    if isinstance(value, Number):
        return str(value.value)
    return repr(argument.spec.text.strip('"')) if value is Absent.TEXT else "None"


def _constant(value: str) -> str:
    """The value of an operand as torch.export writes it: {"as_float": 1.5} is 1.5."""
    data: Any = json.loads(value)
    if isinstance(data, Mapping) and len(data) == 1:
        (tag, data), *_ = data.items()
        data = None if tag == "as_none" else data
    return repr(data)


def _same(text: str, default: str) -> bool:
    """True if a value is the default, also if one is an integer and the other a float."""
    if text == default:
        return True
    try:
        return float(text) == float(default)
    except ValueError:
        return False


def number_texts(arguments: Sequence[Argument]) -> Iterator[str]:
    """The numbers that a kernel gets: "xnumel=4096"."""
    for argument in arguments:
        if isinstance(argument.before, Number) and argument.spec.form is not Form.OPAQUE:
            yield f"{argument.name}={argument.before.value}"
