"""The decorator of frozen dataclasses, which makes the code of a class when the first instance is made.

It is kept for the start of commands. `dataclasses.dataclass` compiles six methods of each class as its module is
imported, and a command imports far more classes than it makes instances of: the modules of a plain `show` are imported
in 0.05 s, with the decorator of the standard library in 0.10 s (Python 3.11, the best of eight times).
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: Literal[True], kw_only: bool = False) -> Callable[[type[T]], type[T]]:
        """The decorator, for type checkers that of the standard library."""
        return functools.partial(_frozen_dataclass, kw_only=kw_only)


def _frozen_dataclass(cls: type[T], *, kw_only: bool = False) -> type[T]:
    cls.__doc__ = cls.__doc__ or cls.__name__  # without a text, the signature of a method would be written out for it
    made = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    fields = dataclasses.fields(made)  # type: ignore[arg-type]  # mypy does not know that it is a dataclass
    shown = [field.name for field in fields if field.repr]
    key = operator.attrgetter("__class__", *(field.name for field in fields if field.compare))  # of one it is no tuple

    def text(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    def equal(self: Any, other: object) -> Any:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: Any) -> int:
        return hash(key(self))

    methods = {
        "__init__": _Initializer(made),
        "__repr__": text,
        "__eq__": equal,
        "__hash__": hash_of,
        "__setattr__": _refuse_to_assign,
        "__delattr__": _refuse_to_delete,
    }
    for name, method in methods.items():
        setattr(made, name, method)
    return made


def _refuse_to_assign(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


class _Initializer:
    """`__init__` of a class until it is first looked up, which replaces this object."""

    def __init__(self, cls: type) -> None:
        self._class = cls

    def __get__(self, instance: object, owner: type) -> Any:
        function = _compiled_init(self._class)
        type.__setattr__(self._class, "__init__", function)
        return function.__get__(instance, owner)


def _compiled_init(cls: type) -> Any:
    """The `__init__` that `dataclasses.dataclass(frozen=True)` would give to the class; it takes half as long.

    Raises:
        TypeError: a field is no parameter, which no class of aoti-debug needs.
    """
    scope: dict[str, Any] = {"_ABSENT": object()}
    positional, by_name, body = ["self"], list[str](), [" _namespace = self.__dict__"]
    fields = dataclasses.fields(cls)
    for field in fields:
        name, value, default = field.name, field.name, ""
        if not field.init:
            raise TypeError(f"{cls.__qualname__}.{name}: only fields that are parameters")
        if field.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"] = field.default_factory
            default, value = "=_ABSENT", f"_make_{name}() if {name} is _ABSENT else {name}"
        elif field.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = field.default
            default = f"=_default_{name}"
        (by_name if field.kw_only else positional).append(f"{name}{default}")
        body.append(f" _namespace[{name!r}] = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    parameters = ", ".join([*positional, *(["*"] if by_name else []), *by_name])
    exec("\n".join([f"def __init__({parameters}):", *body]), scope)
    function = scope["__init__"]
    function.__annotations__ = {**{field.name: field.type for field in fields}, "return": None}
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    return function
