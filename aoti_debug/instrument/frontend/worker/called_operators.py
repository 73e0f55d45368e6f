"""Lists the operators that generated code calls, with schemas and call stacks; imports torch."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aoti_debug.instrument.wrapper.launches.c_functions import OPERATORS_BY_NAME
from aoti_debug.package.manifest import OperatorSchema, Parameter

_OPTIONAL = re.compile(r"Optional\[(.*)\]")


def describe(name: str, operator: Any) -> OperatorSchema:
    """The schema of a registered operator.

    Args:
        name: "aten.addmm.out"
    """
    import torch
    from torchgen.aoti.fallback_ops import inductor_fallback_ops

    schema = operator._schema
    since = first_versions(inductor_fallback_ops.get(name, {}))
    parameters = tuple(
        Parameter(
            argument.name,
            *_type(str(argument.real_type)),
            keyword_only=argument.kwarg_only,
            out=argument.is_out,
            default=argument.has_default_value(),
            since=since.get(argument.name, 1),
        )
        for argument in schema.arguments
    )
    base = name.split(".")[1]
    written = any(parameter.out for parameter in parameters) or (base.endswith("_") and not base.endswith("__"))
    return OperatorSchema(
        name,
        parameters,
        returns=0 if written else len(schema.returns),
        random=torch.Tag.nondeterministic_seeded in operator.tags,
        text=str(schema),
    )


def first_versions(versions: Mapping[str, Any]) -> dict[str, int]:
    """The first version of an operator's C function that takes each parameter that its first version did not take.

    Args:
        versions: an entry of inductor_fallback_ops: {"v2": ["sorted"]}, {"v2": {"new_args": ["sorted"]}}
    """
    since: dict[str, int] = {}
    for key, entry in versions.items():
        if key.startswith("v"):
            names = entry.get("new_args", ()) if isinstance(entry, Mapping) else entry
            since |= {name: max(int(key[1:]), since.get(name, 1)) for name in names}
    return since


def _type(text: str) -> tuple[str, bool]:
    optional = _OPTIONAL.fullmatch(text)
    return (optional[1], True) if optional else (text, False)


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
