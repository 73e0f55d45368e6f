"""The form of a launch in generated C++: its reader, and flattened arguments with unique names and consistent roles."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax import expressions
from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression
from aoti_debug.instrument.wrapper.cpp_syntax.expressions import UnreadError
from aoti_debug.instrument.wrapper.cpp_syntax.functions import Variables
from aoti_debug.instrument.wrapper.launches.c_functions import Prototype, ProxyNode
from aoti_debug.instrument.wrapper.launches.triton_functions import TritonFunction
from aoti_debug.package.manifest import Arg, CType, Form, Kind, ProxyArgument, Role


@dataclass(frozen=True)
class Slot:
    """An argument whose name and role are preliminary.

    Attributes:
        key: equal for two slots of one call that hold the same tensor; "" if not a tensor.
    """

    arg: Arg
    key: str = ""


def tensor(
    text: str,
    *,
    value: int,
    form: Form,
    role: Role,
    ctype: str = "AtenTensorHandle",
    param: str = "",
    element: int = -1,
) -> Slot:
    """Makes a slot for a tensor expression; a null expression is named after its parameter ("indices[0]").

    Raises:
        UnreadError: it is another expression.
    """
    expression = expressions.tensor(text)
    if expression is None and not expressions.is_null(text):
        raise UnreadError(f"tensor expression {text}")
    return Slot(
        Arg(
            name=expression.name if expression else param or _position_name(value, element),
            param=param,
            form=form,
            role=role,
            ctype=ctype,
            text=text,
            value=value,
            element=element,
            base=expression.variable if expression else "",
        ),
        key=expression.key if expression else "",
    )


def number(
    text: str,
    *,
    value: int,
    form: Form,
    ctype: str,
    param: str = "",
    role: Role = Role.NONE,
    element: int = -1,
    referent: CType = CType.NONE,
) -> Slot:
    """Makes a slot for a number, a string or an opaque value, named after its parameter, variable or position."""
    return Slot(
        Arg(
            name=param or expressions.variable(text) or _position_name(value, element),
            param=param,
            form=form,
            role=role,
            ctype=ctype,
            text=text,
            value=value,
            element=element,
            referent=referent,
        )
    )


def _position_name(value: int, element: int) -> str:
    return f"arg{value}[{element}]" if element >= 0 else f"arg{value}"


def to_arguments(slots: Sequence[Slot], bases: Mapping[str, str]) -> tuple[Arg, ...]:
    """Returns the arguments of a call, with unique names and consistent roles.

    A tensor that is passed twice has one name, and is in-out in both places if it is read in one and written in the
    other; different values of one name get `_2`, `_3`. Bases are resolved to the outermost variable, and a view through
    a temporary handle is named after it.
    """
    slots = [_named_after_base(slot, bases) for slot in slots]
    names = _unique_names(slots)
    roles = _merged_roles(slots)
    return tuple(
        replace(
            slot.arg,
            name=name,
            role=roles.get(slot.key, slot.arg.role) if slot.arg.form is not Form.OUTPUT_SLOT else slot.arg.role,
            base=resolve_alias(slot.arg.base, bases),
        )
        for slot, name in zip(slots, names, strict=True)
    )


def resolve_alias(name: str, bases: Mapping[str, str]) -> str:
    """Follows aliases from a variable to the outermost one."""
    visited = {name}
    while name in bases and bases[name] not in visited:
        name = bases[name]
        visited.add(name)
    return name


def _named_after_base(slot: Slot, bases: Mapping[str, str]) -> Slot:
    base = slot.arg.base
    if not base.startswith("tmp_") or resolve_alias(base, bases) == base:
        return slot
    return replace(slot, arg=replace(slot.arg, name=f"{resolve_alias(base, bases)}_view"))


def _unique_names(slots: Sequence[Slot]) -> list[str]:
    taken: dict[str, str | int] = {}
    names = []
    for i, slot in enumerate(slots):
        owner = slot.key or i
        name, n = slot.arg.name, 1
        while taken.setdefault(name, owner) != owner:
            n += 1
            name = f"{slot.arg.name}_{n}"
        names.append(name)
    return names


def _merged_roles(slots: Sequence[Slot]) -> dict[str, Role]:
    roles_by_key: dict[str, set[Role]] = {}
    for slot in slots:
        if slot.key and slot.arg.form is not Form.OUTPUT_SLOT:
            roles_by_key.setdefault(slot.key, set()).add(slot.arg.role)
    return {key: Role.INOUT for key, roles in roles_by_key.items() if len(roles) > 1 and Role.UNKNOWN not in roles}


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
            Raises UnreadError where it has this form, and something of it is not read.
    """

    callees: re.Pattern[str]
    read: Callable[[CallExpression, FunctionContext], ParsedLaunch | None]
