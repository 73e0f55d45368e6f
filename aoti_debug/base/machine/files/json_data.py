"""Converts frozen dataclasses to JSON and back: the one strict reader for all JSON files and messages of this tool.

Accepted annotations of fields: `str`, `int`, `float`, `bool`, an `Enum`, another dataclass, a named tuple, `Any`,
`tuple[X, ...]`, `tuple[X, Y]`, `Mapping[str, X]`, `X | None`. Scalars are not converted: neither `true` nor `"3"` is an
int; an int is accepted as a float. A missing field takes its default, an unknown one is ignored, so that a later
version may add fields.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, Union

from aoti_debug.base import wording
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.machine.files import untrusted_files

T = TypeVar("T")
_Reader = Callable[[Any, str], Any]


class DamagedJsonError(ValueError):
    """Text that is not JSON, or JSON that does not match a dataclass; the message names the place."""


class OtherFormatError(ValueError):
    """JSON of a format version that this reader does not know; the message is "format 2; … reads format 1"."""


def to_text(value: Any, *, indent: int | None = 1) -> str:
    """The JSON text (UTF-8, one object) of a dataclass instance."""
    return json.dumps(to_data(value), indent=indent)


def to_data(value: Any) -> Any:
    """A dataclass instance or named tuple as a dict by field name, at any depth; `dataclasses.asdict` copies leaves."""
    kind = type(value)
    if kind in (str, int, float, bool, type(None)):
        return value
    if kind in (tuple, list):
        return [to_data(item) for item in value]
    if is_dataclass(kind):
        return {name: to_data(getattr(value, name)) for name in kind.__dataclass_fields__}
    if _is_named_tuple(kind):
        return {name: to_data(item) for name, item in zip(kind._fields, value, strict=True)}
    return {key: to_data(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def number(value: Any) -> Any:
    """A number in a document for users: what JSON lacks is "nan", "inf" or "-inf"; a complex one is a list of two."""
    if isinstance(value, complex):
        return [number(value.real), number(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def parse_value(text: str | bytes) -> Any:
    """Parses JSON text.

    Raises:
        DamagedJsonError: it is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise DamagedJsonError("it is nested too deeply") from None
    except ValueError as error:
        raise DamagedJsonError(str(error)) from error


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parses text that holds one JSON object.

    Raises:
        DamagedJsonError: it is not JSON, is nested too deeply, or holds something else.
    """
    value = parse_value(text)
    if not isinstance(value, dict):
        raise DamagedJsonError(f"it holds {_short(value)}, not an object")
    return value


def parse(cls: type[T], text: str | bytes) -> T:
    """Reads a dataclass from JSON text.

    Raises:
        DamagedJsonError: the text is not JSON, or not an object of this class.
    """
    return from_data(cls, parse_object(text))


def parse_versioned(text: str | bytes, format_: int) -> dict[str, Any]:
    """Parses text that holds one JSON object, whose member `format` is its format version.

    Raises:
        DamagedJsonError: it is not JSON, is nested too deeply, or holds something else.
        OtherFormatError: the format is another one.
    """
    data = parse_object(text)
    actual = data.get("format")
    if type(actual) is not int or actual != format_:
        raise OtherFormatError(f"format {_short(actual)}; this aoti-debug reads format {format_}")
    return data


def read_file(
    directory: Path,
    name: str,
    read: Callable[[dict[str, Any]], T],
    *,
    hint: str,
    format_: int | None = None,
    hint_of_format: str = "read it with the version of aoti-debug that wrote it",
) -> T:
    """Reads a JSON file of a run directory, or of another one that this tool made.

    Args:
        read: makes the content of the object that the file holds; raises a ValueError if that is malformed.
        hint: what to do about a file that is damaged or cannot be read.
        format_: the version of the format; None for a file without one.
        hint_of_format: what to do about a file of another one.

    Raises:
        FileNotFoundError: there is no such file.
        RunDirError: it cannot be read, is damaged, or has another format.
    """
    path = directory / name
    try:
        text = untrusted_files.read_bytes(directory, name)
        return read(parse_object(text) if format_ is None else parse_versioned(text, format_))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RunDirError(f"cannot read {path}: {error.strerror}", hint=hint) from error
    except OtherFormatError as error:
        raise RunDirError(f"{path} has {error}", hint=hint_of_format) from error
    except ValueError as error:
        raise RunDirError(f"{path} is damaged: {error}", hint=hint) from error


def from_data(cls: type[T], data: Any, where: str = "") -> T:
    """Reads a dataclass from a value that `json.loads` returned.

    Args:
        where: the place of `data` in its file, for messages: "sites[3]"; "" for the whole file.

    Raises:
        DamagedJsonError: it is not an object of this class.
    """
    hint: Any = cls
    instance: T = _reader_of(hint)(data, where)
    return instance


def _reader_of(hint: Any) -> _Reader:
    if hint is Any:
        return lambda value, where: value
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _union(args)
    if origin is tuple:
        return _sequence(args)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_reader_of(args[1]))
    if hint is type(None):
        return _scalar(type(None), "null")
    if isinstance(hint, type) and (is_dataclass(hint) or _is_named_tuple(hint)):
        return _record(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    if hint is float:
        return _float
    if hint in (str, int, bool):
        return _scalar(hint, {str: "text", int: "an integer", bool: "true or false"}[hint])
    raise TypeError(f"{hint} has no form in JSON")


def _scalar(cls: type, name: str) -> _Reader:
    def read(value: Any, where: str) -> Any:
        if type(value) is not cls:
            raise _wrong(value, where, name)
        return value

    return read


def _float(value: Any, where: str) -> float:
    number = math.inf
    if type(value) in (int, float):
        with contextlib.suppress(OverflowError):  # an integer above the largest float
            number = float(value)
    if not math.isfinite(number):
        raise _wrong(value, where, "a finite number")
    return number


def _enum(cls: type[Enum]) -> _Reader:
    members = {member.value: member for member in cls}

    def read(value: Any, where: str) -> Any:
        member = members.get(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
        if member is None:
            raise _wrong(value, where, f"one of {cls.__name__}")
        return member

    return read


def _sequence(args: tuple[Any, ...]) -> _Reader:
    if len(args) == 2 and args[1] is Ellipsis:
        read_item = _reader_of(args[0])

        def read(value: Any, where: str) -> Any:
            if not isinstance(value, (list, tuple)):
                raise _wrong(value, where, "a list")
            return tuple(read_item(item, f"{where}[{i}]") for i, item in enumerate(value))

        return read
    readers = [_reader_of(arg) for arg in args]

    def read_fixed(value: Any, where: str) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) != len(readers):
            raise _wrong(value, where, f"a list of {len(readers)}")
        return tuple(
            read_item(item, f"{where}[{i}]") for i, (read_item, item) in enumerate(zip(readers, value, strict=True))
        )

    return read_fixed


def _mapping(read_item: _Reader) -> _Reader:
    def read(value: Any, where: str) -> Any:
        if not isinstance(value, Mapping):
            raise _wrong(value, where, "an object")
        return {str(key): read_item(item, _member(where, str(key))) for key, item in value.items()}

    return read


def _union(args: tuple[Any, ...]) -> _Reader:
    readers = [_reader_of(arg) for arg in args if arg is not type(None)]
    optional = type(None) in args

    def read(value: Any, where: str) -> Any:
        if value is None and optional:
            return None
        for i, reader in enumerate(readers):
            try:
                return reader(value, where)
            except DamagedJsonError:
                if i + 1 == len(readers):
                    raise
        raise _wrong(value, where, "null")

    return read


@functools.cache  # by class only: `str | int` and `int | str` are equal keys, and differ in their messages
def _record(cls: type) -> _Reader:
    readers: dict[str, _Reader] = {}
    required: list[str] = []

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, Mapping):
            raise _wrong(value, where, "an object")
        if not readers:  # at the first use: a class may contain itself
            for name, type_, is_required in _members(cls):
                readers[name] = _reader_of(type_)
                if is_required:
                    required.append(name)
        values = {name: reader(value[name], _member(where, name)) for name, reader in readers.items() if name in value}
        for name in required:
            if name not in values:
                raise DamagedJsonError(f"{_member(where, name)} is missing")
        return cls(**values)

    return read


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _members(cls: Any) -> Iterator[tuple[str, Any, bool]]:
    """Name and type of each member of a dataclass or named tuple; True if it has no default."""
    if _is_named_tuple(cls):
        hints = typing.get_type_hints(cls)
        yield from ((name, hints[name], name not in cls._field_defaults) for name in cls._fields)
        return
    scope = vars(sys.modules[cls.__module__])
    for field in fields(cls):
        if field.init:
            has_default = field.default is not MISSING or field.default_factory is not MISSING
            yield field.name, _type_of(field.type, scope), not has_default


def _type_of(annotation: Any, scope: dict[str, Any]) -> Any:
    """The type that an annotation names, as `typing.get_type_hints` would find it, which compiles every text."""
    return (_TYPES.get(annotation) or eval(annotation, scope)) if isinstance(annotation, str) else annotation


_TYPES = {"str": str, "int": int, "float": float, "bool": bool}


def _member(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _wrong(value: Any, where: str, expected: str) -> DamagedJsonError:
    return DamagedJsonError(f"{where or 'it'} is {_short(value)}, not {expected}")


def _short(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, Mapping):
        return "an object"
    text = json.dumps(value)
    return wording.truncated(text, 40)
