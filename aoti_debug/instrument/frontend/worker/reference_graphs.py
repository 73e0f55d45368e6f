"""Records the graphs that kernels are generated from while Inductor lowers a program, in the same process.

When a graph's operations are scheduled, it is the one being lowered: `V.graph.module`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aoti_debug.base import dtypes
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.instrument.frontend.worker import after_fusion
from aoti_debug.instrument.frontend.worker.completed_graphs import with_bases, with_lines_of_callers
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.recording import stack_frames
from aoti_debug.package.reference.program import (
    EXPORTED,
    FOLDING,
    FORMAT,
    HIGHER_ORDER,
    MODEL,
    BufferValue,
    Graph,
    Node,
    NodeKind,
    Reference,
    TensorType,
)

_USER_TRITON = ("triton_kernel_wrapper_mutation",)
# Operators that overwrite their fourth and fifth argument, running means and variances, if the sixth is true; their
# schemas do not say so.
_NORMALIZATIONS = frozenset(
    f"aten.{name}.default" for name in ("batch_norm", "instance_norm", "native_batch_norm", "cudnn_batch_norm")
)
_LARGEST_INLINED = 8  # torch._inductor.graph.GraphLowering.can_inline_constant
_KINDS = {"placeholder": NodeKind.INPUT, "output": NodeKind.OUTPUT}


class ReferenceGraphs:
    """The graphs recorded so far.

    Attributes:
        failure: why a graph is missing; "" if none is.
        exported_failure: why those of the exported program are; "" if they are not.
    """

    def __init__(self) -> None:
        self.failure = ""
        self.exported_failure = ""
        self._graphs: dict[tuple[str, str], Graph] = {}
        self._exported: tuple[Graph, ...] = ()
        self._lines: dict[ModelLine, int] = {}
        self._line_of_stack: dict[str, int] = {}
        self._function = MODEL

    def record(self, operations: Sequence[Any]) -> None:
        """Records the graph that is being lowered.

        Args:
            operations: its scheduled operations.
        """
        from torch._inductor.virtualized import V

        self.begin(V.graph, operations)

    def begin(self, lowered: Any, operations: Sequence[Any] = ()) -> None:
        """Records a graph that is about to be lowered.

        Args:
            lowered: a torch._inductor.graph.GraphLowering.
            operations: its scheduled operations, whose buffers hold values; none yet where it is to be lowered.
        """
        name = lowered.name or ""
        if not name:
            self._function = FOLDING if lowered.is_const_graph else MODEL
        nodes = with_bases([self._inner_node(node, name, "_") for node in lowered.module.graph.nodes])
        values = tuple(BufferValue(buffer, node.name) for buffer, node in _buffer_values(operations).items())
        self._graphs[name, self._function] = Graph(name, self._function, nodes, values)
        for path, module in _graph_modules(name, lowered.module, "_"):  # some are lowered as a part of a kernel
            inner = with_bases([self._inner_node(node, path, "_") for node in module.graph.nodes])
            self._graphs.setdefault((path, self._function), Graph(path, self._function, inner, ()))

    def of_program(self, nodes: Iterable[Any]) -> None:
        """Records the graph of an exported program, which was not lowered: no buffers hold its values."""
        self._graphs["", MODEL] = Graph("", MODEL, tuple(map(self._node, nodes)), ())

    def record_exported(self, program: Any) -> None:
        """Records the graphs of an exported program (torch.export.ExportedProgram) that is about to be lowered."""
        given = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.target is not None}
        returned = _returned(program.graph_signature)
        whole = tuple(self._exported_node(node, given, returned) for node in program.graph.nodes)
        bodies = [(path, module) for path, module in _graph_modules("", program.graph_module, ".") if path]
        graphs = [(path, [self._inner_node(node, path, ".") for node in module.graph.nodes]) for path, module in bodies]
        self._exported = tuple(Graph(path, EXPORTED, tuple(nodes), ()) for path, nodes in [("", whole), *graphs])

    def _inner_node(self, node: Any, path: str, separator: str) -> Node:
        """A node of the body at this path: the names of bodies within it are paths too.

        Args:
            separator: as Inductor names the graphs that it lowers (GraphLowering.qualify_name), or of attributes.
        """
        recorded = self._node(node)
        is_body = bool(path) and recorded.kind is NodeKind.SUBGRAPH
        return replace(recorded, target=f"{path}{separator}{recorded.target}") if is_body else recorded

    def _exported_node(self, node: Any, given: Mapping[str, str], returned: Returned) -> Node:
        """A node of the whole program: weights are inputs there, and what replaces them is returned."""
        recorded = self._node(node)
        if node.op == "placeholder" and node.name in given:
            return replace(recorded, kind=NodeKind.WEIGHT, target=given[node.name])
        if node.op != "output":
            return recorded
        values = list(recorded.args[0])
        new = {target: values[position] for position, target in returned.replaced.items()}
        return replace(recorded, args=([values[position] for position in returned.to_user],), kwargs=new)

    def reference(self) -> Reference:
        """The recorded graphs."""
        import torch

        return Reference(
            FORMAT,
            str(torch.__version__),
            tuple(with_lines_of_callers(self._graphs.values())),
            tuple(self._lines),
            failure=self.failure,
            exported=tuple(with_lines_of_callers(self._exported)),
            exported_failure=self.exported_failure,
        )

    def _node(self, node: Any) -> Node:
        value = node.meta.get("val")
        types, size = _result(value)
        target, args = _call(node)
        return Node(
            name=node.name,
            kind=_kind(node),
            target=target,
            args=tuple(_argument(argument) for argument in args),
            kwargs={name: _argument(argument) for name, argument in node.kwargs.items()},
            types=types,
            size=size,
            line=self._line(node.meta.get("stack_trace") or ""),
            module=module_path(node.meta.get("nn_module_stack")),
            mutates=tuple(dict.fromkeys(_mutated(node))),
            value=_inlined(node) if node.op == "get_attr" else None,
        )

    def _line(self, stack: str) -> int:
        """The index of the model line of a stack trace; -1 if it has none."""
        if stack not in self._line_of_stack:
            lines = stack_frames.own_frames((stack,))
            self._line_of_stack[stack] = self._lines.setdefault(lines[0], len(self._lines)) if lines else -1
        return self._line_of_stack[stack]


@dataclass(frozen=True)
class Returned:
    """The values that an exported program returns, by their positions in the graph's output.

    Attributes:
        to_user: what the user gets, in order.
        replaced: what replaces a weight, a buffer or an input, with its name.
    """

    to_user: tuple[int, ...]
    replaced: Mapping[int, str]


def _returned(signature: Any) -> Returned:
    """Reads a torch.export.ExportGraphSignature."""
    to_user, replaced = [], {}
    for position, spec in enumerate(signature.output_specs):
        if spec.kind.name == "USER_OUTPUT":
            to_user.append(position)
        elif spec.target is not None:
            replaced[position] = spec.target
    return Returned(tuple(to_user), replaced)


def _graph_modules(path: str, module: Any, separator: str) -> Iterator[tuple[str, Any]]:
    """A graph module and those of its branches and loops, at any depth, with their paths: "true_graph_0"."""
    yield path, module
    for node in module.graph.nodes:
        inner = getattr(module, node.target, None) if node.op == "get_attr" else None
        if hasattr(inner, "graph"):
            yield from _graph_modules(f"{path}{separator}{node.target}" if path else node.target, inner, separator)


@contextlib.contextmanager
def record_graphs(program: Any) -> Iterator[ReferenceGraphs]:
    """Yields the graphs of a program, which is lowered inside the `with`, and of what it is lowered to.

    Args:
        program: a torch.export.ExportedProgram.
    """
    graphs = ReferenceGraphs()
    try:
        graphs.record_exported(program)
    except Exception as error:  # noqa: BLE001 - torch's own classes change from one version to the next
        graphs.exported_failure = f"{type(error).__name__}: {error}"
    with after_fusion.shown_to(graphs):
        yield graphs


def _kind(node: Any) -> NodeKind:
    if node.op != "get_attr":
        return _KINDS.get(node.op, NodeKind.CALL)
    return NodeKind.WEIGHT if node.meta.get("val") is not None else NodeKind.SUBGRAPH


def _inlined(node: Any) -> tuple[Any, ...] | None:
    """The elements of a weight that Inductor may write into the source of a kernel; None for others."""
    import torch

    value: Any = node.graph.owning_module
    for name in node.target.split("."):
        value = getattr(value, name, None)
    is_overwritten = any(node.name in _mutated(user) for user in node.users)
    if not isinstance(value, torch.Tensor) or value.is_meta or is_overwritten or value.layout is not torch.strided:
        return None
    is_small = value.dim() == 0 or (value.dim() == 1 and value.numel() <= _LARGEST_INLINED)
    return tuple(_argument(item) for item in value.reshape(-1).tolist()) if is_small else None


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
    return f"{target.__module__}.{target.__qualname__}"


def _argument(value: Any) -> Any:
    """An argument as JSON (see aoti_debug.package.reference.program)."""
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


def _mutated(node: Any) -> Iterator[str]:
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
        for item in _flat([value]):
            if isinstance(item, torch.fx.Node):
                yield item.name


def _mutated_by_body(body: Any, operands: Sequence[Any]) -> Iterator[str]:
    """The operands that the body of an operator overwrites, directly or through views."""
    nodes = {node.name: node for node in body.graph.nodes}
    given = dict(zip((node for node in nodes.values() if node.op == "placeholder"), operands, strict=False))
    for node in nodes.values():
        for name in _mutated(node):
            base = nodes[name]
            while base.op == "call_function" and base.all_input_nodes:
                base = base.all_input_nodes[0]
            if base in given:
                yield given[base].name


def _buffer_values(operations: Sequence[Any]) -> dict[str, Any]:
    """The node whose value each buffer holds, by the buffer's name."""
    buffers = [output for operation in operations for output in operation.get_outputs()]
    held = {buffer.get_name(): getattr(buffer.node, "origin_node", None) for buffer in buffers}
    by_name = {buffer.get_name(): buffer.node for buffer in buffers}
    for operation in operations:
        for name, node in _realized_inputs(operation):
            if name in held and held[name] is None:
                held[name] = node
    return {name: node for name, node in held.items() if node is not None and _same_type(by_name[name], node)}


def _realized_inputs(operation: Any) -> Iterator[tuple[str, Any]]:
    """The buffers that the tensor arguments of an operator's call lie in: (name, node), where the two lists match."""
    inputs = getattr(operation.node, "inputs", None)
    call = _call_of(operation)
    if not isinstance(inputs, list | tuple) or call is None:
        return
    buffers = list(_flat(inputs))
    nodes = [node for node in call.all_input_nodes if _is_tensor(node)]
    if len(buffers) == len(nodes):
        for buffer, node in zip(buffers, nodes, strict=True):
            if type(buffer).__name__ != "ReinterpretView":
                yield buffer.get_name(), node


def _call_of(operation: Any) -> Any:
    """The node of the operator that an operation calls; None if it is not known, or calls none."""
    node = getattr(operation.node, "origin_node", None)
    if node is not None:
        return node
    overload = getattr(operation.node, "op_overload", None)
    calls = [origin for origin in getattr(operation.node, "origins", ()) if origin.target is overload]
    return calls[0] if len(calls) == 1 else None


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


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _is_tensor(node: Any) -> bool:
    import torch

    return isinstance(node.meta.get("val"), torch.Tensor)


def _same_type(buffer: Any, node: Any) -> bool:
    """True if a buffer has the dtype and the shape of a node's value."""
    value, layout = node.meta.get("val"), buffer.layout
    if not _is_tensor(node) or not hasattr(layout, "size"):
        return False
    return list(map(str, value.shape)) == list(map(str, layout.size)) and value.dtype == layout.dtype
