"""The values that nodes are given: arguments as Python values, dtypes in an arithmetic, the weights of a program.

Weights are mapped from the archive of the exported program when they are used. Runs in a child process.
"""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base import dtypes, wording
from aoti_debug.compare.evaluate.arithmetic import Arithmetic, wider
from aoti_debug.compare.evaluate.functions import NotEvaluableError, operator_of
from aoti_debug.compare.protocol.request import is_kept_input
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, TensorType
from aoti_debug.package.pt2 import load_program
from aoti_debug.package.pt2.program_weights import StoredWeight, mapped, stored_weights

if TYPE_CHECKING:
    import torch


class ExportedWeights:
    """The weights of an exported program, and the inputs of its calls.

    Args:
        exported: the program; None if it is not known.
        inputs: gives the leaves of a call's inputs, when they are first asked for; None if they are not known.

    Attributes:
        failure: why the program could not be loaded; "" if it was, or was not asked for.
    """

    def __init__(self, exported: Path | None, inputs: Callable[[], Sequence[Any]] | None = None) -> None:
        self._exported = exported
        self._give = inputs
        self.failure = ""

    def given(self, graph: Graph, node: Node) -> torch.Tensor | None:
        """The value of a weight or of an input of a whole model; None if it is not known, or of another type."""
        import torch

        if node.kind is NodeKind.WEIGHT:
            return self.value(node)
        names = [item.name for item in graph.nodes if item.kind is NodeKind.INPUT]
        type_ = node.types[0] if len(node.types) == 1 else None
        if not is_kept_input(graph, node) or type_ is None or len(names) != len(self._inputs):
            return None
        value = self._inputs[names.index(node.name)]
        if not isinstance(value, torch.Tensor) or value.dim() != len(type_.shape):
            return None
        pairs = zip(value.shape, type_.shape, strict=True)
        has_shape = all(not text.isdigit() or int(text) == size for size, text in pairs)
        return value if has_shape and dtypes.bare_name(value.dtype) == type_.dtype else None

    @cached_property
    def _inputs(self) -> Sequence[Any]:
        return () if self._give is None else self._give()

    def value(self, node: Node) -> torch.Tensor | None:
        """The value of a weight as the program begins with it; None if it is not known, or of another type."""
        import torch

        type_ = node.types[0] if len(node.types) == 1 else None
        if self._exported is None or type_ is None:
            return None
        stored = self._stored.get(node.target)
        value = self._loaded.get(node.target) if stored is None else mapped(self._exported, stored)
        if not isinstance(value, torch.Tensor):
            return None
        return value.detach() if has_type(value, type_) else None

    @cached_property
    def _stored(self) -> Mapping[str, StoredWeight]:
        with contextlib.suppress(OSError, zipfile.BadZipFile):
            return {} if self._exported is None else stored_weights(self._exported)
        return {}

    @cached_property
    def _loaded(self) -> Mapping[str, object]:
        """All weights, read by torch: those that cannot be mapped are among them."""
        try:
            program = load_program.load(str(self._exported))
        except Exception as error:  # noqa: BLE001 - loading runs code of torch, and of the program's operators
            self.failure = (
                f"{self._exported} cannot be loaded: {wording.first_line(str(error)) or type(error).__name__}"
            )
            return {}
        return {**program.constants, **program.state_dict}


def weight_of(node: Node, elements: Sequence[Any], device: str) -> torch.Tensor:
    """A weight whose elements are in the reference: `Node.value`, `Node.initial`."""
    import torch

    (type_,) = node.types
    assert type_ is not None
    values = [python_value(item, {}, Arithmetic.EAGER, device) for item in elements]
    tensor = torch.tensor(values, dtype=getattr(torch, type_.dtype), device=device)
    return tensor.reshape([int(size) for size in type_.shape])


def has_type(value: torch.Tensor, type_: TensorType) -> bool:
    """True if a tensor has the dtype and the shape of a type."""
    return (dtypes.bare_name(value.dtype), tuple(map(str, value.shape))) == (type_.dtype, type_.shape)


def python_value(argument: Any, current: Mapping[str, Any], arithmetic: Arithmetic, device: str) -> Any:
    """The Python value of an argument (see aoti_debug.package.program_graphs).

    Args:
        current: the values of nodes, by name.

    Raises:
        NotEvaluableError: it is of a kind that cannot be written down.
    """
    import torch

    if isinstance(argument, list | tuple):
        return [python_value(item, current, arithmetic, device) for item in argument]
    if not isinstance(argument, Mapping):
        return argument
    ((kind, text),) = argument.items()
    match kind:
        case "node":
            return current[text]
        case "float":
            return float(text)
        case "complex":
            return complex(*text)
        case "dtype":
            return getattr(torch, wider(text, arithmetic))
        case "device":
            return torch.device(device)
        case "layout" | "memory_format":
            return getattr(torch, text)
        case "operator":
            return operator_of(text)
        case "dict":
            return {name: python_value(item, current, arithmetic, device) for name, item in text.items()}
        case "slice":
            return slice(*(python_value(part, current, arithmetic, device) for part in text))
    raise NotEvaluableError(f"an argument of a kind that cannot be written down: {kind} {text}")


def in_own_dtypes(graph: Graph, node: Node, arithmetic: Arithmetic, values: Any) -> Any:
    """Arguments of a node with the dtypes that its operator has in the program."""
    import torch

    names = iter(node.inputs)
    originals = [graph.by_name[name].types for name in names]
    narrow = {wider(t.dtype, arithmetic): t.dtype for types in originals for t in types if t is not None}

    def restore(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            name = dtypes.bare_name(value.dtype)
            return value.to(getattr(torch, narrow.get(name, name)))
        if isinstance(value, torch.dtype):
            name = dtypes.bare_name(value)
            own = {wider(t.dtype, arithmetic): t.dtype for t in node.types if t is not None}
            return getattr(torch, own.get(name, name))
        if isinstance(value, dict):
            return {key: restore(item) for key, item in value.items()}
        return [restore(item) for item in value] if isinstance(value, list) else value

    return restore(values)


def with_rounded_numbers(graph: Graph, node: Node, args: list[Any]) -> list[Any]:
    """Arguments of a comparison whose Python numbers are rounded to the 16 bit dtype of its tensor.

    Inductor's kernels round them, as eager does, but not the tensor's elements where these are computed in the kernel.
    """
    import torch

    if [type_ is not None and type_.dtype for type_ in node.types] != ["bool"]:
        return args
    read = {t.dtype for source in node.inputs for t in graph.by_name[source].types if t is not None}
    if len(read) != 1:
        return args
    (name,) = read
    if wider(name, Arithmetic.KERNEL) == name:
        return args
    dtype = getattr(torch, name)
    return [float(torch.tensor(item, dtype=dtype)) if isinstance(item, float) else item for item in args]


def converted(value: Any, arithmetic: Arithmetic) -> Any:
    """A value, with its tensors in the dtypes that stand for theirs in an arithmetic."""
    import torch

    if isinstance(value, torch.Tensor):
        name = dtypes.bare_name(value.dtype)
        target = wider(name, arithmetic)
        return value if target == name else value.to(getattr(torch, target))
    if isinstance(value, list | tuple):
        return [converted(item, arithmetic) for item in value]
    return value
