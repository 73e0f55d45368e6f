"""Operators that generated code calls, and their schemas. Runs where torch is imported."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_OF_TORCH = frozenset({"aten", "prims", "prim", "higher_order", "inductor"})


def operators(archive: Path, own: Iterable[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The operators that have a C shim; the schemas of these, of `own` and of all that the proxy executor calls."""
    from torchgen.aoti.fallback_ops import inductor_fallback_ops

    shims = tuple(inductor_fallback_ops)
    called = [_dotted(name) for name in own]
    with zipfile.ZipFile(archive) as file:
        for member in file.namelist():
            if member.endswith(".wrapper.json"):
                called += [_dotted(node["node"]["target"]) for node in json.loads(file.read(member))["nodes"]]
    schemas = {name: _schema(name) for name in (*shims, *called)}
    return shims, {name: schema for name, schema in schemas.items() if schema}


def stacks(program: Any) -> dict[str, str]:
    """Where an exported program calls its custom operators: the stack of each that it calls once, by name."""
    import torch

    found: dict[str, list[str]] = {}
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace not in _OF_TORCH:
                name = f"{node.target.namespace}::{node.target._schema.name.partition('::')[2]}"
                overloaded = f"{name}.{node.target._overloadname}"
                found.setdefault(overloaded, []).append(str(node.meta.get("stack_trace") or ""))
    return {name: calls[0] for name, calls in found.items() if len(calls) == 1 and calls[0]}


def _dotted(target: str) -> str:
    """An operator's full name: "mylib::op" and "mylib::op.out" as "mylib.op.default" and "mylib.op.out"."""
    namespace, _, rest = target.replace("::", ".").partition(".")
    name, _, overload = rest.partition(".")
    return f"{namespace}.{name}.{overload or 'default'}"


def _schema(name: str) -> str:
    found = overload(name)
    return "" if found is None else str(found._schema)


def overload(name: str) -> Any:
    """The operator of this name, or None."""
    import torch

    namespace, op, overload = _dotted(name).split(".")
    packet = getattr(getattr(torch.ops, namespace), op, None)
    found = getattr(packet, overload, None)
    return found if isinstance(found, torch._ops.OpOverload) else None
