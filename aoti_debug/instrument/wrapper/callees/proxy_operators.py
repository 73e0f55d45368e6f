"""Parses the proxy executor's list of operators (`*.wrapper.json`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.files.json_data import DamagedJsonError
from aoti_debug.package.manifest import ProxyArgument

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


def parse(text: str) -> tuple[ProxyNode, ...]:
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
    return tuple(dict.fromkeys(node.target for node in parse(text)))


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
