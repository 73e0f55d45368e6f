"""The input signature of an exported program: one leaf for each value of its flattened arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aoti_debug.base import dtypes
from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data


@dataclass(frozen=True)
class Dim:
    """A dimension of a tensor; fixed if minimum and maximum are equal.

    Attributes:
        maximum: -1 if there is no limit.
        symbol: may be an expression of symbols: "2*s77".
    """

    minimum: int
    maximum: int
    symbol: str = ""

    @property
    def fixed(self) -> bool:
        """True if the dimension has one size only."""
        return self.minimum == self.maximum

    def admits(self, size: int) -> bool:
        """True if a size is within the bounds."""
        return size >= self.minimum and (self.maximum < 0 or size <= self.maximum)

    def __str__(self) -> str:
        if self.fixed:
            return str(self.minimum)
        limit = "" if self.maximum < 0 else str(self.maximum)
        return f"{self.symbol}:{self.minimum}..{limit}"


@dataclass(frozen=True)
class Leaf:
    """A tensor, or another value, which export has fixed.

    Attributes:
        name: in the exported program; "" if a compiled package does not record it.
        dtype: "torch.float32"; "" if the value is not a tensor.
        device: "cpu", "cuda:0"; "cuda" for any GPU, the same for all inputs.
        strides: an expression if it depends on a size that is not fixed.
        constant: repr of a value that is not a tensor; "" if unknown.
    """

    name: str
    dtype: str = ""
    device: str = ""
    shape: tuple[Dim, ...] = ()
    strides: tuple[int | str, ...] | None = None
    constant: str = ""

    @property
    def is_tensor(self) -> bool:
        """True if the leaf is a tensor."""
        return bool(self.dtype)

    def __str__(self) -> str:
        if not self.is_tensor:
            return self.constant or "of unknown value"
        return f"{dtypes.bare_name(self.dtype)}[{', '.join(map(str, self.shape))}] on {self.device}"


@dataclass(frozen=True)
class ModelSignature:
    """The inputs of a model.

    Attributes:
        leaves: in the order of the flattened (args, kwargs).
        in_spec: the pytree of (args, kwargs) as torch serializes it; "" if it cannot.
        others: number of values of that pytree without a leaf here: a compiled package records how many of its
            arguments are not tensors, but not which ones nor their values. Torch ignores them.
    """

    leaves: tuple[Leaf, ...]
    in_spec: str = ""
    others: int = 0

    @property
    def count(self) -> int:
        """The number of values of a call."""
        return len(self.leaves) + self.others

    def name(self, position: int) -> str:
        """The name of a leaf; "input 3" if it has none, counted from 0."""
        return self.leaves[position].name or f"input {position}"

    def lines(self) -> list[str]:
        """Describes the inputs, a line for each value: "x float32[8, 32] on cpu"."""
        lines = [f"{self.name(position)} {leaf}" for position, leaf in enumerate(self.leaves)]
        if self.others:
            count = (
                f"{self.others} arguments that are not tensors"
                if self.others > 1
                else "1 argument that is not a tensor"
            )
            lines.append(f"and {count}: the package does not record which")
        return lines

    def indented_lines(self) -> str:
        """Returns `lines`, each indented and after a line break."""
        return "".join(f"\n  {line}" for line in self.lines())


def keyword_names(signature: ModelSignature) -> tuple[str, ...]:
    """The names of the values of keyword arguments, by leaf, as torch.export names them: "index", "batch_ids".

    "" for those of positional arguments; () if the structure of the arguments does not say.
    """
    try:
        _, keywords = (spec := json_data.parse_value(signature.in_spec)[1])["children_spec"]
        positional = ["" for _ in _leaf_paths(spec["children_spec"][0], ())]
        named = ["_".join(path) for path in _leaf_paths(keywords, ())]
    except (ValueError, LookupError, TypeError):
        return ()
    return (*positional, *named) if not signature.others else ()


def has_nested_arguments(signature: ModelSignature) -> bool:
    """True if a value is inside of a list or a dict that is an argument, or if the structure does not say."""
    try:
        arguments, keywords = json_data.parse_value(signature.in_spec)[1]["children_spec"]
        return any(len(path) > 1 for spec in (arguments, keywords) for path in _leaf_paths(spec, ()))
    except (ValueError, LookupError, TypeError):
        return True


def _leaf_paths(spec: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The keys and positions that lead to each leaf of a pytree, as torch serializes it."""
    children = spec["children_spec"]
    if spec["type"] is None:
        yield path
    is_dict = isinstance(spec["type"], str) and spec["type"].endswith("dict")
    keys = json_data.parse_value(spec["context"]) if is_dict else range(len(children))
    for key, child in zip(keys, children, strict=True):
        yield from _leaf_paths(child, (*path, str(key)))


def to_json(signature: ModelSignature) -> str:
    """Writes a signature as JSON."""
    return json_data.to_text(signature, indent=None)


def from_json(text: str) -> ModelSignature:
    """Reads a signature from JSON.

    Raises:
        ArtifactError: `text` is not a signature.
    """
    try:
        return json_data.parse(ModelSignature, text)
    except json_data.DamagedJsonError as error:
        raise ArtifactError(f"the package's input signature is damaged: {error}", hint="build it again") from error


def describe(program: Any) -> ModelSignature:
    """Returns the signature of a `torch.export.ExportedProgram`."""
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
    """Converts an upper bound to a number; -1 for infinity, which sympy writes in more than one way."""
    if not getattr(upper, "is_Integer", isinstance(upper, int)):
        return -1
    number = int(upper)
    return -1 if number >= 1 << 62 else number
