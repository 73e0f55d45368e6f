"""Operators: the operator behind a C-shim function, and the parameters that its schema marks as mutated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
