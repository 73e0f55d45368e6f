"""What an exported program takes: one leaf for each value among its flattened arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aoti_debug import dtypes
from aoti_debug.errors import ArtifactError
from aoti_debug.machine import json_data


@dataclass(frozen=True)
class Dim:
    """A dimension: fixed where minimum and maximum are equal. `maximum` -1: no limit.

    `symbol` may be an expression of symbols: "2*s77".
    """

    minimum: int
    maximum: int
    symbol: str = ""

    @property
    def fixed(self) -> bool:
        return self.minimum == self.maximum

    def admits(self, size: int) -> bool:
        return size >= self.minimum and (self.maximum < 0 or size <= self.maximum)

    def __str__(self) -> str:
        if self.fixed:
            return str(self.minimum)
        limit = "" if self.maximum < 0 else str(self.maximum)
        return f"{self.symbol}:{self.minimum}..{limit}"


@dataclass(frozen=True)
class Leaf:
    """A tensor, or a value that export has fixed (`dtype` is "" then and `constant` its repr, "" where it is not
    known)."""

    name: str
    dtype: str = ""  # "torch.float32"
    device: str = ""  # "cpu", "cuda:0"; "cuda" for any of them, the same for all inputs
    shape: tuple[Dim, ...] = ()
    strides: tuple[int | str, ...] | None = None  # an expression where it depends on a size that is not fixed
    constant: str = ""

    @property
    def is_tensor(self) -> bool:
        return bool(self.dtype)

    def __str__(self) -> str:
        if not self.is_tensor:
            return self.constant or "of which the package says nothing"
        return f"{dtypes.bare_name(self.dtype)}[{', '.join(map(str, self.shape))}] on {self.device}"


@dataclass(frozen=True)
class ModelSignature:
    """Leaves in the order of the flattened (args, kwargs).

    Attributes:
        in_spec: that pytree as torch dumps it; "" where it cannot.
        others: values of that pytree that are no leaf here: a compiled package tells how many of its arguments are no
            tensors, neither which nor what they were. Torch passes them over.
    """

    leaves: tuple[Leaf, ...]
    in_spec: str = ""
    others: int = 0

    @property
    def count(self) -> int:
        """How many values a call has."""
        return len(self.leaves) + self.others

    def lines(self) -> list[str]:
        """What the model takes, each value on a line of its own: "x float32[8, 32] on cpu"."""
        lines = [f"{leaf.name} {leaf}" for leaf in self.leaves]
        if self.others:
            what = (
                "1 argument that is no tensor" if self.others == 1 else f"{self.others} arguments that are no tensors"
            )
            lines.append(f"and {what}: the package does not say which")
        return lines

    def described(self) -> str:
        """`lines`, indented, each after a line break."""
        return "".join(f"\n  {line}" for line in self.lines())


def to_json(signature: ModelSignature) -> str:
    return json_data.to_text(signature, indent=None)


def from_json(text: str) -> ModelSignature:
    """Raises ArtifactError where `text` is no signature."""
    try:
        return json_data.parse(ModelSignature, text)
    except json_data.DamagedJsonError as error:
        raise ArtifactError(f"the package's input signature is damaged: {error}", hint="build it again") from error


def describe(program: Any) -> ModelSignature:
    """The signature of a `torch.export.ExportedProgram`."""
    import torch
    from torch.utils import _pytree as pytree

    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    leaves = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name != "USER_INPUT":
            continue
        value = values.get(spec.arg.name)
        if isinstance(value, torch.Tensor):
            leaves.append(_describe_tensor(spec.arg.name, value, program.range_constraints))
        else:
            leaves.append(Leaf(spec.arg.name, constant=repr(getattr(spec.arg, "value", value))))
    try:
        in_spec = pytree.treespec_dumps(program.call_spec.in_spec)
    except NotImplementedError:  # a container without a serialized name
        in_spec = ""
    return ModelSignature(tuple(leaves), in_spec)


def _describe_tensor(name: str, tensor: Any, ranges: Mapping[Any, Any]) -> Leaf:
    shape = tuple(_describe_dim(size, ranges) for size in tensor.shape)
    return Leaf(
        name,
        dtype=str(tensor.dtype),
        device=str(tensor.device),
        shape=shape,
        strides=tuple(stride if isinstance(stride, int) else str(stride.node.expr) for stride in tensor.stride()),
    )


def _describe_dim(size: Any, ranges: Mapping[Any, Any]) -> Dim:
    if isinstance(size, int):
        return Dim(size, size)
    expression = size.node.expr
    bounds = ranges.get(expression)
    if bounds is None:
        return Dim(0, -1, str(expression))
    return Dim(int(bounds.lower), _limit(bounds.upper), str(expression))


def _limit(upper: Any) -> int:
    """An upper bound as a number; -1 for infinity, which sympy writes in more than one way."""
    if not getattr(upper, "is_Integer", isinstance(upper, int)):
        return -1
    number = int(upper)
    return -1 if number >= 1 << 62 else number
