"""The arguments of a node as Python values, and the dtypes of tensors in an arithmetic. Runs in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aoti_debug.base import dtypes
from aoti_debug.base.dtypes import Category
from aoti_debug.compare.evaluate.arithmetic import Arithmetic, wider
from aoti_debug.compare.evaluate.functions import NotEvaluableError, operator_of
from aoti_debug.package.reference.program import Graph, Node


def python_value(argument: Any, current: Mapping[str, Any], arithmetic: Arithmetic, device: str) -> Any:
    """The Python value of an argument (see aoti_debug.package.reference.program).

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


def is_floating(dtype: str) -> bool:
    """True for a floating or complex dtype."""
    info = dtypes.of_name(dtype)
    return info is not None and info.category in (Category.FLOATING, Category.COMPLEX)
