"""The C functions that a wrapper calls: their prototypes, and the operators behind them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.files.json_data import DamagedJsonError
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import mask
from aoti_debug.package.manifest import CType, Form, ProxyArgument

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
_SHIM = re.compile(r"aoti_torch_(?:cpu|cuda|xpu|aten)_(?P<suffix>\w+)\Z")
_DECLARED = re.compile(r"(\w+)\s*\(")
_VERSION = re.compile(r"_v\d+\Z")
_MUTATED = re.compile(r"Tensor\(\w+!(?:\s*->[^)]*)?\)[\[\]\d?]*\s+(\w+)")

_ITEM = "aten._local_scalar_dense.default"
# Functions of the shim that are not named after a device.
_PLAIN = {
    "aoti_torch_index_put_out": "aten.index_put.out",
    "aoti_torch_scatter_out": "aten.scatter.src_out",
    "aoti_torch_scatter_reduce_out": "aten.scatter_reduce.two_out",
    "aoti_torch_copy_": "aten.copy_.default",
    "aoti_torch_zero_": "aten.zero_.default",
    "aoti_torch_clone": "aten.clone.default",
    "aoti_torch_clone_preserve_strides": "aten.clone.default",
}
OPERATORS_BY_NAME = frozenset({_ITEM, *_PLAIN.values()})  # which operator_of() finds without being told their names


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


def shim_operators(names: Iterable[str]) -> dict[str, str]:
    """Maps the suffix of each C-shim function to its operator: {"addmm_out": "aten.addmm.out"}.

    Args:
        names: operators as torchgen.aoti.fallback_ops.inductor_fallback_ops lists them: "aten.addmm.out",
            "aten.convolution.default".
    """
    return {suffix_of(name): name for name in names}


def declared_shims(declarations: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Maps each C function that the user declared to its custom operator.

    Args:
        declarations: operator -> declarations: {"mylib::op": ["AOTITorchError aoti_torch_cpu_op(…)"]}
    """
    operators: dict[str, str] = {}
    for operator, texts in declarations.items():
        namespace, _, rest = operator.replace("::", ".").partition(".")
        name, _, overload = rest.partition(".")
        for text in texts:
            if (declared := _DECLARED.search(text)) is not None:
                operators[declared[1]] = f"{namespace}.{name}.{overload or 'default'}"
    return operators


def suffix_of(operator: str) -> str:
    """Returns the shim's suffix for an operator: "aten.sort.stable" -> "sort_stable"."""
    _, base, overload = operator.split(".", 2)
    return base if overload == "default" else f"{base}_{overload}"


def operator_of(callee: str, operators: Mapping[str, str]) -> str:
    """Returns the operator behind a C-shim function; "" if unknown."""
    if callee in operators:
        return operators[callee]
    if callee in _PLAIN:
        return _PLAIN[callee]
    if callee.startswith("aoti_torch_item_"):
        return _ITEM
    match = _SHIM.match(callee)
    if match is None:
        return ""
    suffix = match["suffix"]
    return operators.get(suffix) or operators.get(_VERSION.sub("", suffix), "")


def mutated(schema: str) -> frozenset[str]:
    """Returns the parameters that an operator mutates: {"x"} for `f(Tensor(a!) x, int k) -> ()`."""
    arguments = schema.rpartition("->")[0] or schema
    return frozenset(_MUTATED.findall(arguments))


def qualified(target: str) -> str:
    """Returns an operator with its overload: "mylib::op" -> "mylib::op.default"."""
    return target if "::" not in target or "." in target.partition("::")[2] else f"{target}.default"


def schema_of(operator: str, schemas: Mapping[str, str]) -> str:
    """Looks up the schema of an operator under every spelling: "aten::f.x", "aten.f.x", "aten::f"."""
    colons = operator if "::" in operator else operator.replace(".", "::", 1)
    plain = colons.removesuffix(".default")
    spellings = (colons, plain, colons.replace("::", ".", 1), plain.replace("::", ".", 1))
    return next((schemas[s] for s in spellings if s in schemas), "")


_KEYWORD = 2  # ArgumentKind of torch's export schema
_NUMBERS = ("as_int", "as_ints", "as_sym_int", "as_sym_ints")
_TENSORS = ("as_tensor", "as_tensors", "as_optional_tensor", "as_optional_tensors")


@dataclass(frozen=True)
class Flat:
    """One entry of a flattened argument array: the parameter, and the buffer of a tensor."""

    param: str  # "x", "xs[1]"
    buffer: str = ""


@dataclass(frozen=True)
class ProxyNode:
    """One operator, and the content of its flattened arrays.

    Attributes:
        target: as the JSON names it: "mylib::op", "aten::complex".
        inputs: tensor arguments, lists flattened, None left out.
        outputs: the tensors that it returns.
        numbers: the integers that the C++ call passes.
        operands, results: all arguments and results.
    """

    target: str
    inputs: tuple[Flat, ...]
    outputs: tuple[Flat, ...]
    numbers: tuple[Flat, ...]
    operands: tuple[ProxyArgument, ...] = ()
    results: tuple[str, ...] = ()


def parse_proxy(text: str) -> tuple[ProxyNode, ...]:
    """Parses the nodes, by their index; () for an empty text.

    Raises:
        ArtifactError: the text is damaged.
    """
    if not text.strip():
        return ()
    try:
        return tuple(_node(entry.node) for entry in json_data.parse(_ListJson, text).nodes)
    except DamagedJsonError as error:
        raise ArtifactError(
            f"the list of proxy operators is damaged: {error}", hint="compile the model again"
        ) from error


def proxy_targets(text: str) -> tuple[str, ...]:
    """Returns the operators of the list, each once: analyse() needs their schemas."""
    return tuple(dict.fromkeys(node.target for node in parse_proxy(text)))


@dataclass(frozen=True)
class _InputJson:
    name: str
    arg: Mapping[str, Any]
    kind: int | None = None


@dataclass(frozen=True)
class _NodeJson:
    target: str
    inputs: tuple[_InputJson, ...]
    outputs: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class _EntryJson:
    node: _NodeJson


@dataclass(frozen=True)
class _ListJson:
    nodes: tuple[_EntryJson, ...]


@dataclass(frozen=True)
class _TensorJson:
    name: str


def _node(data: _NodeJson) -> ProxyNode:
    tensors: list[Flat] = []
    numbers: list[Flat] = []
    for entry in data.inputs:
        argument_tensors, ints = _flatten(entry.name, entry.arg)
        tensors += argument_tensors
        numbers += ints
    outputs: list[Flat] = []
    for i, output in enumerate(data.outputs):
        argument_tensors, ints = _flatten(f"ret{i}", output)
        outputs += argument_tensors
        numbers += ints
    operands = tuple(ProxyArgument(e.name, e.kind == _KEYWORD, json.dumps(e.arg)) for e in data.inputs)
    results = tuple(json.dumps(output) for output in data.outputs)
    return ProxyNode(data.target, tuple(tensors), tuple(outputs), tuple(numbers), operands, results)


def _flatten(name: str, arg: Mapping[str, Any]) -> tuple[list[Flat], list[Flat]]:
    """Returns the tensors and the integers of one argument, a tagged union such as {"as_tensor": {"name": "buf0"}}."""
    if not arg:
        raise DamagedJsonError(f"argument {name} is empty")
    kind, value = next(iter(arg.items()))
    items = value if isinstance(value, list) else None
    if kind in (*_NUMBERS, *_TENSORS) and kind.endswith("s") is not (items is not None):
        raise DamagedJsonError(f"argument {name}: {kind} holds {'no list' if items is None else 'a list'}")
    if kind in _NUMBERS:
        return [], [Flat(f"{name}[{i}]") for i in range(len(items))] if items is not None else [Flat(name)]
    tensors = [
        Flat(name if items is None else f"{name}[{i}]", buffer)
        for i, item in enumerate(value if items is not None else [value])
        if (buffer := _buffer(kind, item))
    ]
    return tensors, []


def _buffer(kind: str, item: Any) -> str:
    if kind in ("as_tensor", "as_tensors"):
        return json_data.from_data(_TensorJson, item, kind).name
    if kind in ("as_optional_tensor", "as_optional_tensors"):
        tensor = item.get("as_tensor") if isinstance(item, dict) else None
        return json_data.from_data(_TensorJson, tensor, kind).name if tensor else ""
    return ""
