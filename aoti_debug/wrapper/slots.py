"""Makes the flattened arguments of a site: names that are unique in their launch, roles that agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aoti_debug.manifest import Arg, CType, Form, Role
from aoti_debug.wrapper import expressions


@dataclass(frozen=True)
class Slot:
    """An argument whose name is not settled yet.

    Attributes:
        key: equal for two slots of one call that hold the same tensor; "" for what is no tensor.
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
    """A slot for a tensor expression. A null expression is named after its parameter ("indices[0]")."""
    found = expressions.tensor(text)
    return Slot(
        Arg(
            name=found.name if found else param or _place(value, element),
            param=param,
            form=form,
            role=role,
            ctype=ctype,
            text=text,
            value=value,
            element=element,
            base=found.variable if found else "",
        ),
        key=found.key if found else "",
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
    """A slot for a number, a string or something opaque, named after its parameter, its variable or its place."""
    return Slot(
        Arg(
            name=param or expressions.variable(text) or _place(value, element),
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


def _place(value: int, element: int) -> str:
    return f"arg{value}[{element}]" if element >= 0 else f"arg{value}"


def settle(slots: Sequence[Slot], bases: Mapping[str, str]) -> tuple[Arg, ...]:
    """The arguments of a call.

    One tensor that is passed twice keeps one name, and if it is read through one and written through another it is
    in-out in both; different things of one name get `_2`, `_3`. Bases are resolved to the outermost variable, and a
    view through a temporary handle is named after it.
    """
    slots = [_through(slot, bases) for slot in slots]
    names = _unique(slots)
    roles = _agreed(slots)
    return tuple(
        replace(
            slot.arg,
            name=name,
            role=roles.get(slot.key, slot.arg.role) if slot.arg.form is not Form.OUTPUT_SLOT else slot.arg.role,
            base=resolve(slot.arg.base, bases),
        )
        for slot, name in zip(slots, names, strict=True)
    )


def resolve(name: str, bases: Mapping[str, str]) -> str:
    """Follows aliases from a variable to the one that they all stand for."""
    seen = {name}
    while name in bases and bases[name] not in seen:
        name = bases[name]
        seen.add(name)
    return name


def _through(slot: Slot, bases: Mapping[str, str]) -> Slot:
    base = slot.arg.base
    if not base.startswith("tmp_") or resolve(base, bases) == base:
        return slot
    return replace(slot, arg=replace(slot.arg, name=f"{resolve(base, bases)}_view"))


def _unique(slots: Sequence[Slot]) -> list[str]:
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


def _agreed(slots: Sequence[Slot]) -> dict[str, Role]:
    seen: dict[str, set[Role]] = {}
    for slot in slots:
        if slot.key and slot.arg.form is not Form.OUTPUT_SLOT:
            seen.setdefault(slot.key, set()).add(slot.arg.role)
    return {key: Role.INOUT for key, roles in seen.items() if len(roles) > 1 and Role.UNKNOWN not in roles}
