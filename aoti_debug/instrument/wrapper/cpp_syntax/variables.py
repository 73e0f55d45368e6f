"""Reads the declarations of a function's variables: C types, aliases, tensors that are initialised."""

from __future__ import annotations

import re

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax.functions import Body

_TYPED = re.compile(
    r"\b(u?int(?:8|16|32|64)_t|int|float|double|bool|auto|const char\*|(?:at|c10)::\w+(?:<\w+>)?)\s+(\w+)\s*(?:=|;)"
)
_VIEW = re.compile(
    r"\bauto (\w+) = wrap_with_raii_handle_if_needed\(reinterpret_tensor_wrapper\((\w+),[^;]*;"
    r"(?P<reset> *\w+\.reset\(\);)?"
)
_ALIAS = re.compile(
    r"\b(aoti_torch_assign_tensors_out|aoti_torch_new_tensor_handle|aoti_torch_\w+_view_dtype)"
    r"\((?:wrap_with_raii_handle_if_needed\(reinterpret_tensor_wrapper\()?(\w+),[^;]*&(\w+)\)\)?;"
)
_ASSIGN = "aoti_torch_assign_tensors_out"
_CONSTANT = re.compile(r"\bauto& (\w+) = constants_->at\(")
_INPUT = re.compile(r"\bauto (\w+) = std::move\(inputs\[")
_TENSOR = re.compile(
    r"\bRAIIAtenTensorHandle (\w+)\b|\bauto (\w+) = (?:std::move|wrap_with_raii_handle|RAIIAtenTensorH)"
)
_REASSIGNED = re.compile(r"^\s*(\w+) = std::move\(", re.MULTILINE)
_UNINITIALISED = re.compile(r"\baoti_torch_new_uninitialized_tensor\(&(\w+)_handle\)")


@dataclass(frozen=True)
class Variables:
    """The variables of one function.

    Attributes:
        types: C type of numbers: {"var_0": "int32_t"}.
        bases: the variable that a view or second handle refers to: {"buf19": "buf22"}. A loop-carried handle has none.
        initialised: tensors with a content before any launch: inputs, weights, a subgraph's inputs and outputs.
        uninitialised: handles that a proxy call fills.
        tensors: all variables that are known to be tensors.
    """

    types: dict[str, str]
    bases: dict[str, str]
    initialised: frozenset[str]
    uninitialised: frozenset[str]
    tensors: frozenset[str]


def variables(masked: str, body: Body) -> Variables:
    """Reads the declarations in a function of the masked wrapper text."""
    text = masked[body.opening : body.closing]
    views = {m.group(1): m.group(2) for m in _VIEW.finditer(text) if not m["reset"]}
    aliases = {m.group(3).removesuffix("_handle"): m.group(2) for m in _ALIAS.finditer(text)}
    reassigned = {m.group(1) for m in _REASSIGNED.finditer(text)}
    initialised = {m.group(1) for pattern in (_CONSTANT, _INPUT) for m in pattern.finditer(text)} | reassigned
    initialised |= {m.group(3).removesuffix("_handle") for m in _ALIAS.finditer(text) if m.group(1) == _ASSIGN}
    return Variables(
        types={m.group(2): m.group(1) for m in _TYPED.finditer(text)},
        bases={name: base for name, base in (views | aliases).items() if name not in {base} | reassigned},
        initialised=frozenset(initialised),
        uninitialised=frozenset(m.group(1) for m in _UNINITIALISED.finditer(text)),
        tensors=frozenset(initialised | set(aliases) | {m.group(1) or m.group(2) for m in _TENSOR.finditer(text)}),
    )
