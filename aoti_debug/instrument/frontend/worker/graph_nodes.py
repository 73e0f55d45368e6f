"""Nodes of the graphs of torch as data: what they call, with which arguments, results and effects; imports torch."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aoti_debug.base import dtypes
from aoti_debug.package.program_graphs import HIGHER_ORDER, Node, NodeKind, TensorType

_LOWERED = "aoti_debug_lowered"  # in the `meta` of a node
_USER_TRITON = ("triton_kernel_wrapper_mutation",)
# Operators that overwrite their fourth and fifth argument, running means and variances, if the sixth is true; their
# schemas do not say so.
_NORMALIZATIONS = frozenset(
    f"aten.{name}.default" for name in ("batch_norm", "instance_norm", "native_batch_norm", "cudnn_batch_norm")
)
_LARGEST_INLINED = 8  # torch._inductor.graph.GraphLowering.can_inline_constant
_KINDS = {"placeholder": NodeKind.INPUT, "output": NodeKind.OUTPUT}


def node_data(node: Any, line: Callable[[str], int]) -> Node:
    """A node of a graph of torch's.

    Args:
        line: the index of the model line of a stack trace.
    """
    types, size = _result(node.meta.get("val"))
    target, args = _call(node)
    return Node(
        name=node.name,
        kind=_kind(node),
        target=target,
        args=tuple(_argument(argument) for argument in args),
        kwargs={name: _argument(argument) for name, argument in node.kwargs.items()},
        types=types,
        size=size,
        line=line(node.meta.get("stack_trace") or ""),
        module=module_path(node.meta.get("nn_module_stack")),
        mutates=tuple(dict.fromkeys(mutated_nodes(node))),
        value=_inlined(node) if node.op == "get_attr" else None,
        lowered=node.meta.get(_LOWERED, ""),
    )


def note_lowered(node: Any, result: Any) -> None:
    """Notes at a node the dtype of what it was lowered to, if that is another than the graph has for it."""
    import torch

    value = node.meta.get("val")
    with contextlib.suppress(Exception):  # of Inductor's own classes, some have no dtype
        if isinstance(value, torch.Tensor) and result.get_dtype() != value.dtype:
            node.meta[_LOWERED] = dtypes.bare_name(result.get_dtype())


def _kind(node: Any) -> NodeKind:
    if node.op != "get_attr":
        return _KINDS.get(node.op, NodeKind.CALL)
    return NodeKind.WEIGHT if node.meta.get("val") is not None else NodeKind.SUBGRAPH


def _inlined(node: Any) -> tuple[Any, ...] | None:
    """The elements of a weight that Inductor may write into the source of a kernel; None for others."""
    value: Any = node.graph.owning_module
    for name in node.target.split("."):
        value = getattr(value, name, None)
    is_overwritten = any(node.name in mutated_nodes(user) for user in node.users)
    return None if is_overwritten else elements_of_small(value)


def elements_of_small(value: Any) -> tuple[Any, ...] | None:
    """The elements of a tensor as small as Inductor may write into the source of a kernel; None for other values."""
    import torch

    if not isinstance(value, torch.Tensor) or value.is_meta or value.layout is not torch.strided:
        return None
    if value.dim() > 1 or (value.dim() == 1 and value.numel() > _LARGEST_INLINED):
        return None
    try:
        return tuple(_argument(item) for item in value.reshape(-1).tolist())
    except RuntimeError:  # packed bits, or a tensor without memory
        return None


def _call(node: Any) -> tuple[str, Sequence[Any]]:
    """The target of a node, and its arguments.

    How the functions that modify attention's scores index a tensor before decompositions (`torch._dynamo`'s ModIndex,
    in a `flat_apply`) is told as the operator that it is.
    """
    if node.op not in ("get_attr", "call_function"):
        return "", node.args
    target = _target(node.target)
    if target == f"{HIGHER_ORDER}flat_apply" and str(node.args[2]).endswith(".ModIndex"):
        table, *indices = node.args[3:]
        return "aten.index.Tensor", (table, indices)
    return target, node.args


def _target(target: Any) -> str:
    """The name of an operator, a function or an attribute."""
    import torch

    if isinstance(target, str | torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"{HIGHER_ORDER}{target.name()}"
    if isinstance(target, torch._ops.OpOverloadPacket) and "default" in target.overloads():
        return str(target.default)
    return f"{target.__module__}.{target.__qualname__}"


def _argument(value: Any) -> Any:
    """An argument as JSON (see aoti_debug.package.program_graphs)."""
    import torch

    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case complex():
            return {"complex": [value.real, value.imag]}
        case list() | tuple():
            return [_argument(item) for item in value]
        case dict():
            return {"dict": {str(name): _argument(item) for name, item in value.items()}}
        case slice():
            return {"slice": [_argument(part) for part in (value.start, value.stop, value.step)]}
        case torch.fx.Node():
            return {"node": value.name}
        case torch.SymInt() | torch.SymFloat() | torch.SymBool():
            return {"size": str(value)}
        case torch.dtype():
            return {"dtype": dtypes.bare_name(value)}
        case torch.device():
            return {"device": str(value)}
        case torch.layout():
            return {"layout": str(value).removeprefix("torch.")}
        case torch.memory_format():
            return {"memory_format": str(value).removeprefix("torch.")}
        case torch._ops.OpOverload():
            return {"operator": str(value)}
    return {"unknown": type(value).__name__}


def _result(value: Any) -> tuple[tuple[TensorType | None, ...], str]:
    """The types of a node's result, and its expression if it is a size."""
    import torch

    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return (), str(value)
    if isinstance(value, list | tuple):
        return tuple(_type(item) for item in value), ""
    return (_type(value),) if isinstance(value, torch.Tensor) else (), ""


def _type(value: Any) -> TensorType | None:
    import torch

    if not isinstance(value, torch.Tensor):
        return None
    strides = value.stride() if value.layout is torch.strided else ()
    return TensorType(
        dtypes.bare_name(value.dtype), str(value.device), tuple(map(str, value.shape)), tuple(map(str, strides))
    )


def module_path(stack: Mapping[str, Any] | None) -> str:
    """The path of the innermost module of a node."""
    if not stack:
        return ""
    path = list(stack.values())[-1][0]
    return str(path).removeprefix("L['self'].")


def mutated_nodes(node: Any) -> Iterator[str]:
    """The nodes whose tensors a call overwrites; a copy of a tensor to itself overwrites nothing."""
    import torch

    if str(node.target) in _USER_TRITON:
        yield from _mutated_by_user_kernel(node)
    if isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() == "wrap_with_set_grad_enabled":
        yield from _mutated_by_body(getattr(node.graph.owning_module, node.args[1].target), node.args[2:])
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    if str(node.target) == "aten.copy_.default" and node.args[0] is node.args[1]:
        return
    if str(node.target) in _NORMALIZATIONS and len(node.args) > 5 and node.args[5] is True:
        yield from (item.name for item in node.args[3:5] if isinstance(item, torch.fx.Node))
    for position, parameter in enumerate(node.target._schema.arguments):
        if parameter.alias_info is None or not parameter.alias_info.is_write:
            continue
        value = node.args[position] if position < len(node.args) else node.kwargs.get(parameter.name)
        for item in flat([value]):
            if isinstance(item, torch.fx.Node):
                yield item.name


def _mutated_by_body(body: Any, operands: Sequence[Any]) -> Iterator[str]:
    """The operands that the body of an operator overwrites, directly or through views."""
    nodes = {node.name: node for node in body.graph.nodes}
    given = dict(zip((node for node in nodes.values() if node.op == "placeholder"), operands, strict=False))
    for node in nodes.values():
        for name in mutated_nodes(node):
            base = nodes[name]
            while base.op == "call_function" and base.all_input_nodes:
                base = base.all_input_nodes[0]
            if base in given:
                yield given[base].name


def _mutated_by_user_kernel(node: Any) -> Iterator[str]:
    """The tensors that a user-defined Triton kernel writes; all that it gets where torch does not tell."""
    import torch

    tensors = {name: item for name, item in node.kwargs["kwargs"].items() if isinstance(item, torch.fx.Node)}
    written = list(tensors)
    with contextlib.suppress(ImportError, AttributeError, TypeError, KeyError, RuntimeError):
        from torch._higher_order_ops.triton_kernel_wrap import get_mutated_tensors

        values = {name: getattr(item, "meta", {}).get("val", item) for name, item in node.kwargs["kwargs"].items()}
        indices = (node.kwargs["kernel_idx"], node.kwargs["constant_args_idx"])
        written = get_mutated_tensors(*indices, values, node.kwargs["tma_descriptor_metadata"])
    yield from (tensors[name].name for name in written if name in tensors)


def flat(values: Any) -> Iterator[Any]:
    """Yields the values of nested lists and tuples."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from flat(value)
        else:
            yield value
