"""The schema of an operator as torch knows it, as plain data; imports torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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
