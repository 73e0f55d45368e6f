"""C prototypes: names, types and forms of the parameters of C-shim functions and generated C++ kernels."""

from __future__ import annotations

import re
from functools import lru_cache

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import mask
from aoti_debug.package.manifest import CType, Form

_FUNCTION = re.compile(r"\b(?:AOTITorchError|void)\s+(\w+)\s*\(([^()]*)\)\s*(?=[;{])")
_EXTERN = re.compile(r"\bextern\b[^;{}()]*?\b(?:AOTITorchError|void|int)\s+(\w+)\s*\(([^()]*)\)\s*(?=[;{])")
_EXTERN_BLOCK = re.compile(r"\bextern\s*\{([^{}]*)\}")
_PARAMETER = re.compile(r"^(?P<ctype>.*?[\s*&])\s*(?P<name>[A-Za-z_]\w*)$", re.DOTALL)
_TYPE_WORD = re.compile(r"(?:const|unsigned|signed|long|int|short|char|float|double|bool|void|\w+_t)\Z")
_OUTPUT_NAME = re.compile(r"(ret\w*|out\d*|new_handle)\Z")

NUMBERS: dict[str, CType] = {
    "bool": CType.BOOL,
    "int8_t": CType.I8,
    "int16_t": CType.I16,
    "short": CType.I16,
    "int32_t": CType.I32,
    "int": CType.I32,
    "int64_t": CType.I64,
    "long": CType.I64,
    "long long": CType.I64,
    "uint8_t": CType.U8,
    "uint16_t": CType.U16,
    "uint32_t": CType.U32,
    "unsigned": CType.U32,
    "unsigned int": CType.U32,
    "uint64_t": CType.U64,
    "size_t": CType.U64,
    "float": CType.F32,
    "double": CType.F64,
}


@dataclass(frozen=True)
class Param:
    """A parameter of a C function."""

    ctype: str  # "AtenTensorHandle*", "const int64_t*"
    name: str  # "" if the prototype has no name for it


@dataclass(frozen=True)
class Prototype:
    """The prototype of a C function."""

    name: str
    params: tuple[Param, ...]


def parse_prototypes(text: str) -> dict[str, Prototype]:
    """Parses every function of a header that returns AOTITorchError or void, by name."""
    return _collect(_FUNCTION, mask(text))


def parse_externs(text: str) -> dict[str, Prototype]:
    """Parses every `extern` function that the generated C++ declares or defines, by name."""
    masked = mask(text)
    prototypes = _collect(_EXTERN, masked)
    for block in _EXTERN_BLOCK.finditer(masked):
        prototypes |= _collect(_FUNCTION, block.group(1))
    return prototypes


def _collect(pattern: re.Pattern[str], masked: str) -> dict[str, Prototype]:
    return {m.group(1): Prototype(m.group(1), _params(m.group(2))) for m in pattern.finditer(masked)}


def _params(text: str) -> tuple[Param, ...]:
    pieces = [" ".join(piece.split()) for piece in text.split(",")]
    return tuple(_param(piece) for piece in pieces if piece not in ("", "void"))


@lru_cache(4096)
def _param(text: str) -> Param:
    match = _PARAMETER.match(text)
    if match is None or _TYPE_WORD.match(match["name"]) or match["ctype"].strip() == "const":
        return Param(_normal(text), "")
    return Param(_normal(match["ctype"]), match["name"])


def _normal(ctype: str) -> str:
    return re.sub(r"\s*([*&])", r"\1", " ".join(ctype.split()))


def number_type(ctype: str) -> CType:
    """Returns the CType of a number that is passed by value, or NONE."""
    return NUMBERS.get(ctype.removeprefix("const "), CType.NONE)


def is_output(param: Param) -> bool:
    """True if the callee writes through this pointer: `AtenTensorHandle* ret0`, `int64_t* ret4`."""
    return param.ctype.endswith("*") and not param.ctype.startswith("const") and bool(_OUTPUT_NAME.match(param.name))


def form_of(param: Param) -> Form:
    """Returns the form in which a C-shim parameter passes its value.

    `AtenTensorHandle*` is an output slot if it is named like one, and an optional input otherwise. Lists of anything
    but tensors and int64_t, and optional lists of numbers, are opaque.
    """
    ctype = param.ctype
    simple = {
        "AtenTensorHandle": Form.TENSOR,
        "const AtenTensorHandle": Form.TENSOR,
        "const AtenTensorHandle*": Form.LIST,
        "const AtenTensorHandle**": Form.OPTIONAL_LIST,
        "const int64_t*": Form.INTS,
        "const char*": Form.STRING,
    }
    if ctype in simple:
        return simple[ctype]
    if ctype == "AtenTensorHandle*":
        return Form.OUTPUT_SLOT if is_output(param) else Form.OPTIONAL
    if number_type(ctype) is not CType.NONE:
        return Form.SCALAR
    if ctype.endswith("*") and number_type(ctype[:-1]) is not CType.NONE and not ctype.startswith("const"):
        return Form.SCALAR_REF
    return Form.OPAQUE
