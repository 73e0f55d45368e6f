"""Recorded data as Python source text: generated scripts are written with these functions only."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable

from aoti_debug.package.manifest import CType

_AVAILABLE = "available_device"  # of replay.memory


def number(value: int | float) -> str:
    """Python source of a number; it evaluates to the same bits, NaN's payload apart."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def text(value: str) -> str:
    """A double-quoted string literal on one line."""
    quoted = repr(value)
    return f'"{quoted[1:-1]}"' if quoted[0] == "'" and '"' not in value and "\\'" not in quoted else quoted


def block(source: str) -> str:
    """A string literal of source text, as it is where Python can hold it so."""
    printable = all(c.isprintable() or c in "\n\t" for c in source)
    if not printable or '"""' in source or source.endswith(("\\", '"')):
        return "\n".join(["(", *(f"    {line!r}" for line in source.splitlines(keepends=True)), ")"])
    return f'r"""{source}"""'


def comment(line: str) -> str:
    """A comment of one line, whatever the text holds."""
    clean = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    return f"# {clean}".rstrip()


def identifiers(names: Iterable[str], reserved: Iterable[str] = ()) -> dict[str, str]:
    """Returns name -> unique Python identifier: the name itself where Python can use it.

    Args:
        reserved: names that are in use.
    """
    unique_names: dict[str, str] = {}
    taken = set(reserved)
    for name in names:
        if name in unique_names:
            continue
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)[:120] or "_"
        if plain[0].isdigit():
            plain = f"_{plain}"
        if plain.startswith("__"):  # which Python mangles in a class
            plain = f"v{plain}"
        unique, n = (f"{plain}_" if plain in RESERVED or keyword.iskeyword(plain) else plain), 2
        while unique in taken:
            unique, n = f"{plain}_{n}", n + 1
        taken.add(unique)
        unique_names[name] = unique
    return unique_names


RESERVED = frozenset({"torch", "launch", "main", "sys", "print", "self", "float", "KERNEL", "ctypes", _AVAILABLE})


def c_string(expression: str) -> str | None:
    """The value of a C string literal as the generated code writes it; None if the expression is none."""
    literal = re.fullmatch(r'\s*"((?:[^"\\\n]|\\.)*)"\s*', expression)
    if literal is None:
        return None
    escapes = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
    return re.sub(r"\\(.)", lambda m: escapes.get(m[1], m[1]), literal[1])


def device(name: str) -> str:
    """Python source of a device; a GPU is replaced by an available one at run time (see `imports_of`)."""
    return f"torch.device({_AVAILABLE}({text(name)}))" if name.startswith("cuda") else f"torch.device({text(name)})"


def imports_of(statement: str) -> tuple[str, ...]:
    """The import statements that a statement with such literals needs."""
    return (f"from replay.memory import {_AVAILABLE}",) if f"torch.device({_AVAILABLE}(" in statement else ()


CTYPES = {  # C++ type -> the type of ctypes
    "bool": "c_bool",
    "int8_t": "c_int8",
    "int16_t": "c_int16",
    "int32_t": "c_int32",
    "int": "c_int",
    "int64_t": "c_int64",
    "long": "c_long",
    "long long": "c_longlong",
    "uint8_t": "c_uint8",
    "uint16_t": "c_uint16",
    "uint32_t": "c_uint32",
    "uint64_t": "c_uint64",
    "size_t": "c_size_t",
    "float": "c_float",
    "double": "c_double",
}
RECORDED_CTYPES = {  # of a number whose C++ type is not known
    CType.BOOL: "c_bool",
    CType.I8: "c_int8",
    CType.I16: "c_int16",
    CType.I32: "c_int32",
    CType.I64: "c_int64",
    CType.U8: "c_uint8",
    CType.U16: "c_uint16",
    CType.U32: "c_uint32",
    CType.U64: "c_uint64",
    CType.F32: "c_float",
    CType.F64: "c_double",
}


def ctypes_number(ctype: str, value: float) -> str:
    """A value as an instance of a type of ctypes."""
    converted = float(value) if ctype in ("c_float", "c_double") else bool(value) if ctype == "c_bool" else int(value)
    return f"ctypes.{ctype}({number(converted)})"
