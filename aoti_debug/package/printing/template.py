"""The text of a print with its fields named after the values that are known at run time.

`"y={y:.3f} n={}"` becomes `"y={t0:.3f} n={i0}"`, with the tensor and the integer beside it. Everything else is put in
words at once. runtime_shims/print/print_text.cpp reads these texts; formatted by Python, they mean the same.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from aoti_debug.base.frozen import dataclass

_SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?0?\d*(?:\.\d+)?[fFeEgG%d]?\Z", re.DOTALL)
_UNTYPED_PRECISION = re.compile(r"\.\d+\Z")


class TemplateError(ValueError):
    """A format string and values that do not go together, or that cannot be printed by a compiled model."""


class ValueKind(Enum):
    """The time at which a value is known, and its kind."""

    TENSOR = "tensor"
    INTEGER = "integer"
    FLOAT = "float"  # known at run time only
    CONSTANT = "constant"


@dataclass(frozen=True)
class Template:
    """A text with fields, and their values.

    Attributes:
        text: fields are `{t0}` for a tensor and `{i0}` for an integer, with a conversion and a format specification.
        tensors, integers: the values, by number.
    """

    text: str
    tensors: tuple[Any, ...]
    integers: tuple[Any, ...]


def make(
    text: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    kind_of: Callable[[Any], ValueKind],
    as_tensor: Callable[[Any], Any],
) -> Template:
    """The template of `text.format(*args, **kwargs)`.

    Args:
        as_tensor: makes a float64 tensor of no dimension of a FLOAT.

    Raises:
        TemplateError: a field has no value, or its format cannot be printed.
    """
    return _Maker(args, kwargs, kind_of, as_tensor).make(text)


class _Maker:
    def __init__(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        kind_of: Callable[[Any], ValueKind],
        as_tensor: Callable[[Any], Any],
    ) -> None:
        self._args = args
        self._kwargs = kwargs
        self._kind_of = kind_of
        self._as_tensor = as_tensor
        self._tensors: list[Any] = []
        self._integers: list[Any] = []

    def make(self, text: str) -> Template:
        words = []
        next_position: int | None = 0  # None: the fields are numbered
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise TemplateError(f"{text!r} is no format string: {error}") from error
        for literal, field, spec, conversion in parts:
            words.append(_escaped(literal))
            if field is None:
                continue
            if field == "":
                if next_position is None:
                    raise TemplateError(f"{text!r} has both numbered and unnumbered fields")
                field, next_position = str(next_position), next_position + 1
            elif field.isdecimal():
                if next_position:
                    raise TemplateError(f"{text!r} has both numbered and unnumbered fields")
                next_position = None
            words.append(self._field(self._value(field), conversion or "", spec or ""))
        return Template("".join(words), tuple(self._tensors), tuple(self._integers))

    def _value(self, field: str) -> Any:
        if "." in field or "[" in field:
            raise TemplateError(f"the field {{{field}}} looks into its value, which a compiled model cannot")
        if field.isdecimal():
            if int(field) >= len(self._args):
                raise TemplateError(f"there is no value for the field {{{field}}}: {len(self._args)} are passed")
            return self._args[int(field)]
        if field not in self._kwargs:
            raise TemplateError(f"there is no value for the field {{{field}}}")
        return self._kwargs[field]

    def _field(self, value: Any, conversion: str, spec: str) -> str:
        if isinstance(value, (list, tuple, dict)):
            if spec:
                raise TemplateError(f"the format {spec!r} does not fit a {type(value).__name__}")
            return self._nested(value)
        kind = self._kind_of(value)
        if kind is ValueKind.CONSTANT:
            try:
                converted = {"": value, "s": str(value), "r": repr(value), "a": ascii(value)}[conversion]
                return _escaped(format(converted, spec))
            except (ValueError, TypeError) as error:
                raise TemplateError(str(error)) from error
        if spec and (conversion or not _SPEC.match(spec) or _UNTYPED_PRECISION.search(spec)):
            shown = f"!{conversion}:{spec}" if conversion else spec
            raise TemplateError(
                f"a compiled model cannot print the format {shown!r}: it prints widths and f, e, g, d and %"
            )
        name = self._name(value, kind)
        return "{" + name + ("!r" if conversion else "") + (f":{spec}" if spec else "") + "}"

    def _nested(self, value: Any) -> str:
        """The text of `repr(value)`."""
        if isinstance(value, dict):
            items = [f"{_escaped(repr(key))}: {self._nested(item)}" for key, item in value.items()]
            return "{{" + ", ".join(items) + "}}"
        if isinstance(value, (list, tuple)):
            inner = ", ".join(self._nested(item) for item in value)
            if isinstance(value, list):
                return f"[{inner}]"
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        kind = self._kind_of(value)
        if kind is ValueKind.CONSTANT:
            return _escaped(repr(value))
        return "{" + self._name(value, kind) + ("!r" if kind is ValueKind.TENSOR else "") + "}"

    def _name(self, value: Any, kind: ValueKind) -> str:
        if kind is ValueKind.INTEGER:
            self._integers.append(value)
            return f"i{len(self._integers) - 1}"
        tensor = value if kind is ValueKind.TENSOR else self._as_tensor(value)
        self._tensors.append(tensor)
        return f"t{len(self._tensors) - 1}"


def c_safe(text: str) -> str:
    """The text of a template as a C string literal may hold it: other bytes of its UTF-8 are fields `{x22}`."""
    plain = frozenset(map(chr, range(0x20, 0x7F))) - frozenset('"\\?')
    return "".join(c if c in plain else "".join(f"{{x{byte:02x}}}" for byte in c.encode()) for c in text)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


@dataclass(frozen=True)
class InspectedTensor:
    """The place of a tensor that an inspector in a model is called on.

    Attributes:
        tag: of the inspector.
        phase: "forward", "backward", or what the model passed.
        index: among the tensors of the call, from 0.
    """

    tag: str
    phase: str
    index: int
