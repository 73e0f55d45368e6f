"""Numbers that a kernel is passed by value, as Python source: `ctypes.c_int64(16)`."""

from __future__ import annotations

from aoti_debug.package.manifest import CType
from aoti_debug.repro import literals

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
RECORDED = {  # of a number whose C++ type is not known
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


def source(ctype: str, value: int | float | bool) -> str:
    """A value as an instance of a type of ctypes."""
    number = float(value) if ctype in ("c_float", "c_double") else bool(value) if ctype == "c_bool" else int(value)
    return f"ctypes.{ctype}({literals.number(number)})"
