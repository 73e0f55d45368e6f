"""An operator's schema as its C shim sees it: the parameters of the C function that stand for each argument."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from aoti_debug.errors import UsageError

PAIRS = ("List[", "Device")  # a pointer and a length; a device's type and index


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operator.

    Attributes:
        type: as torch names it, without Optional: "Tensor", "int", "number", "List[int]", "ScalarType", "Device".
    """

    name: str
    type: str
    optional: bool = False
    keyword_only: bool = False
    out: bool = False
    default: bool = False

    @property
    def width(self) -> int:
        """The number of parameters of the C function that stand for it."""
        return 2 if self.type.startswith(PAIRS) else 1


@dataclass(frozen=True)
class OperatorSchema:
    """An operator's schema, with what its C shim makes of it.

    Attributes:
        op: "aten.addmm.out"
        parameters: in the order of the operator's schema.
        returns: how many tensors or numbers a C function hands out after its parameters; 0 for an in-place or out one.
        random: it draws from a generator.
    """

    op: str
    parameters: tuple[Parameter, ...]
    returns: int
    random: bool = False

    @property
    def width(self) -> int:
        """The number of parameters of the C function that stand for arguments."""
        return sum(p.width for p in self.parameters)

    def in_c(self) -> list[tuple[int, Parameter]]:
        """(index of the first C parameter, parameter), in the order of the C function: outputs to write come first."""
        order = [p for p in self.parameters if p.out] + [p for p in self.parameters if not p.out]
        starts = accumulate((p.width for p in order), initial=0)
        return list(zip(starts, order, strict=False))


def registered_schema(op: str, callee: str) -> OperatorSchema:
    """Looks the operator up in the installed torch (imports torch).

    Args:
        op: "aten.addmm.out"
        callee: the C function; a trailing `_v2` says which version of it, for an older one has fewer parameters.

    Raises:
        UsageError: the installed torch has no such operator.
    """
    import torch

    namespace, _, rest = op.partition(".")
    name, _, overload = rest.rpartition(".")
    try:
        operator = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except AttributeError as error:
        raise UsageError(
            f"torch {torch.__version__} has no operator {op}",
            hint="use the torch that the package was built with; import what defines the operator",
        ) from error
    random = torch.Tag.nondeterministic_seeded in operator.tags
    return _operator_schema(op, operator._schema, _added_after(op, callee), random)


def parsed_schema(op: str, schema: str) -> OperatorSchema:
    """Parses the schema of an operator that is not registered here.

    Args:
        schema: "mylib::op(Tensor x, float factor) -> Tensor"
    """
    import torch

    return _operator_schema(op, torch._C.parse_schema(schema), set(), random=False)


def _operator_schema(op: str, schema: Any, newer: set[str], random: bool) -> OperatorSchema:
    name = op.split(".")[1]
    parameters = tuple(
        Parameter(
            a.name,
            *_type(str(a.real_type)),
            keyword_only=a.kwarg_only,
            out=a.is_out,
            default=a.has_default_value(),
        )
        for a in schema.arguments
        if a.name not in newer
    )
    written = any(p.out for p in parameters) or (name.endswith("_") and not name.endswith("__"))
    return OperatorSchema(op, parameters, 0 if written else len(schema.returns), random)


def _type(text: str) -> tuple[str, bool]:
    optional = re.fullmatch(r"Optional\[(.*)\]", text)
    return (optional[1], True) if optional else (text, False)


def _added_after(op: str, callee: str) -> set[str]:
    """Arguments that newer versions of a C function have and this one does not."""
    from torchgen.aoti.fallback_ops import inductor_fallback_ops

    suffix = re.search(r"_v(\d+)$", callee)
    version = int(suffix[1]) if suffix else 1
    versions: dict[str, object] = inductor_fallback_ops.get(op, {})
    added: set[str] = set()
    for key, entry in versions.items():
        if key.startswith("v") and int(key[1:]) > version:
            names = entry.get("new_args", []) if isinstance(entry, dict) else entry
            added |= set(names) if isinstance(names, list) else set()
    return added
