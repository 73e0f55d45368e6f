"""Lists the operators that generated code calls, with schemas and call stacks; imports torch."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aoti_debug.instrument.frontend.worker.operator_schema import describe
from aoti_debug.instrument.wrapper.callees.shim_operators import OPERATORS_BY_NAME
from aoti_debug.package.manifest import OperatorSchema

_TORCH_NAMESPACES = frozenset({"aten", "prims", "prim", "higher_order", "inductor"})


def shims_and_schemas(
    archive: Path, custom_operators: Iterable[str]
) -> tuple[tuple[str, ...], dict[str, OperatorSchema]]:
    """Returns the operators with a C shim, and schemas: of these, of custom operators and of proxy executor calls."""
    from torchgen.aoti.fallback_ops import inductor_fallback_ops

    shims = tuple(inductor_fallback_ops)
    called = [_dotted(name) for name in custom_operators]
    with zipfile.ZipFile(archive) as file:
        for member in file.namelist():
            if member.endswith(".wrapper.json"):
                called += [_dotted(node["node"]["target"]) for node in json.loads(file.read(member))["nodes"]]
    operators = {name: find_overload(name) for name in (*shims, *sorted(OPERATORS_BY_NAME), *called)}
    return shims, {name: describe(name, operator) for name, operator in operators.items() if operator is not None}


def operator_stacks(program: Any) -> dict[str, str]:
    """The Python stack of each custom operator that an exported program calls exactly once, by name."""
    import torch

    stacks: dict[str, list[str]] = {}
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace not in _TORCH_NAMESPACES:
                name = f"{node.target.namespace}::{node.target._schema.name.partition('::')[2]}"
                overloaded = f"{name}.{node.target._overloadname}"
                stacks.setdefault(overloaded, []).append(str(node.meta.get("stack_trace") or ""))
    return {name: calls[0] for name, calls in stacks.items() if len(calls) == 1 and calls[0]}


def _dotted(target: str) -> str:
    """The full name of an operator: "mylib::op" and "mylib::op.out" as "mylib.op.default" and "mylib.op.out"."""
    namespace, _, rest = target.replace("::", ".").partition(".")
    name, _, overload = rest.partition(".")
    return f"{namespace}.{name}.{overload or 'default'}"


def find_overload(name: str) -> Any:
    """The registered operator of this name, or None."""
    import torch

    namespace, op, overload = _dotted(name).split(".")
    packet = getattr(getattr(torch.ops, namespace), op, None)
    operator = getattr(packet, overload, None)
    return operator if isinstance(operator, torch._ops.OpOverload) else None
