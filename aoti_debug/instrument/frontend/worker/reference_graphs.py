"""Records the graphs that kernels are generated from, and the layouts of buffers, while Inductor lowers a program.

Inductor calls the setting `_post_fusion_custom_pass` with the scheduled operations of every graph, after it has fused
them. The graph is then the one being lowered: `V.graph.module`. Recorded graphs are completed:
model lines within branches and loops, tensors that are overwritten through views.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.frontend.worker.graph_nodes import elements_of_small, flat, node_data
from aoti_debug.package import origins
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.program_graphs import (
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
    is_view,
)

_SETTING = "_post_fusion_custom_pass"


class Recorder(Protocol):
    """Records what it is shown.

    Attributes:
        failure: why a graph is missing; "" if none is.
    """

    failure: str

    def record(self, operations: list[Any]) -> None:
        """Records the graph with these scheduled operations."""


@contextlib.contextmanager
def shown_to(recorder: Recorder) -> Iterator[None]:
    """Shows the recorder the fused operations of every graph that Inductor lowers inside the `with`.

    A pass that the user has set is called before it.
    """
    import torch._inductor.config as config

    if not hasattr(config, _SETTING):
        recorder.failure = f"it has no setting {_SETTING}"
        yield
        return
    with config.patch({_SETTING: _Pass(recorder, getattr(config, _SETTING))}):
        yield


class _Pass:
    """A pass that changes nothing, and whose errors do not stop the lowering."""

    def __init__(self, recorder: Recorder, inner_pass: Any) -> None:
        self._recorder = recorder
        self._inner_pass = inner_pass

    def __call__(self, operations: list[Any]) -> list[Any]:
        if self._inner_pass is not None:
            operations = self._inner_pass(operations)
        try:
            self._recorder.record(operations)
        except Exception as error:  # noqa: BLE001 - Inductor's own classes change from one version to the next
            self._recorder.failure = f"{type(error).__name__}: {error}"
        return operations


class BufferLayouts:
    """The layouts recorded so far.

    Attributes:
        graphs: text of one graph each, a buffer a line: "buf3.layout = FixedLayout(…)"; the program's own graph first,
            then those of its branches and loops.
        failure: why the layouts of a graph are missing; "" if they are not.
    """

    def __init__(self) -> None:
        self.graphs: list[str] = []
        self.failure = ""

    def record(self, operations: Sequence[Any]) -> None:
        """Records the layouts of the buffers that scheduled operations write."""
        buffers = [buffer for operation in operations for buffer in operation.get_outputs()]
        self.graphs.append("".join(f"{buffer.get_name()}.layout = {buffer.node.layout}\n" for buffer in buffers))


@contextlib.contextmanager
def record_layouts() -> Iterator[BufferLayouts]:
    """Yields the layouts of the programs that are lowered inside the `with`."""
    layouts = BufferLayouts()
    with shown_to(layouts):
        yield layouts


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
        nodes = _with_bases([self._inner_node(node, name, "_") for node in lowered.module.graph.nodes])
        values = tuple(BufferValue(buffer, node.name) for buffer, node in _buffer_values(operations).items())
        self._graphs[name, self._function] = Graph(name, self._function, nodes, values)
        for path, module in _graph_modules(name, lowered.module, "_"):  # some are lowered as a part of a kernel
            inner = _with_bases([self._inner_node(node, path, "_") for node in module.graph.nodes])
            self._graphs.setdefault((path, self._function), Graph(path, self._function, inner, ()))

    def of_program(self, nodes: Iterable[Any]) -> None:
        """Records the graph of an exported program, which was not lowered: no buffers hold its values."""
        self._graphs["", MODEL] = Graph("", MODEL, tuple(node_data(node, self._line) for node in nodes), ())

    def record_exported(self, program: Any) -> None:
        """Records the graphs of an exported program (torch.export.ExportedProgram) that is about to be lowered."""
        given = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.target is not None}
        returned = _returned(program.graph_signature)
        stored = {**program.constants, **program.state_dict}
        small = {target: elements_of_small(stored.get(target)) for target in given.values()}
        nodes = [self._exported_node(node, given, returned) for node in program.graph.nodes]
        stays = {given[name] for name in given.keys() - {name for node in nodes for name in node.mutates}}
        stays -= {*returned.replaced.values()}
        whole = tuple(replace(node, initial=small[node.target]) if node.target in stays else node for node in nodes)
        bodies = [(path, module) for path, module in _graph_modules("", program.graph_module, ".") if path]
        graphs = [(path, [self._inner_node(node, path, ".") for node in module.graph.nodes]) for path, module in bodies]
        self._exported = tuple(Graph(path, EXPORTED, tuple(nodes), ()) for path, nodes in [("", whole), *graphs])

    def _inner_node(self, node: Any, path: str, separator: str) -> Node:
        """A node of the body at this path: the names of bodies within it are paths too.

        Args:
            separator: as Inductor names the graphs that it lowers (GraphLowering.qualify_name), or of attributes.
        """
        recorded = node_data(node, self._line)
        is_body = bool(path) and recorded.kind is NodeKind.SUBGRAPH
        return replace(recorded, target=f"{path}{separator}{recorded.target}") if is_body else recorded

    def _exported_node(self, node: Any, given: Mapping[str, str], returned: Returned) -> Node:
        """A node of the whole program: weights are inputs there, and what replaces them is returned."""
        recorded = node_data(node, self._line)
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
            tuple(_with_lines_of_callers(self._graphs.values())),
            tuple(self._lines),
            failure=self.failure,
            exported=tuple(_with_lines_of_callers(self._exported)),
            exported_failure=self.exported_failure,
        )

    def _line(self, stack: str) -> int:
        """The index of the model line of a stack trace; -1 if it has none."""
        if stack not in self._line_of_stack:
            lines = origins.own_frames((stack,))
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
    with shown_to(graphs):
        yield graphs


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
    buffers = list(flat(inputs))
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


def _is_tensor(node: Any) -> bool:
    import torch

    return isinstance(node.meta.get("val"), torch.Tensor)


def _same_type(buffer: Any, node: Any) -> bool:
    """True if a buffer has the dtype and the shape of a node's value."""
    value, layout = node.meta.get("val"), buffer.layout
    if not _is_tensor(node) or not hasattr(layout, "size"):
        return False
    return list(map(str, value.shape)) == list(map(str, layout.size)) and value.dtype == layout.dtype


def _with_lines_of_callers(graphs: Iterable[Graph]) -> Iterator[Graph]:
    """Graphs whose nodes without a model line, in a branch or loop, have that of the branch or loop itself."""
    lines: dict[tuple[str, str], int] = {}
    for graph in sorted(graphs, key=lambda graph: len(graph.name)):  # what calls a graph comes before it
        own = lines.get((graph.name, graph.function), -1)
        nodes = [replace(node, line=own) if node.line < 0 <= own else node for node in graph.nodes]
        for node in nodes:
            bodies = (graph.by_name[name] for name in node.inputs if node.target.startswith(HIGHER_ORDER))
            lines |= {(body.target, graph.function): node.line for body in bodies if body.kind is NodeKind.SUBGRAPH}
        yield replace(graph, nodes=tuple(nodes))


def _with_bases(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Nodes that overwrite, with a view, what it is a view of, and its other views so far."""
    base_of: dict[str, str] = {}
    found: list[Node] = []
    for node in nodes:
        if is_view(node):
            base_of[node.name] = base_of.get(node.inputs[0], node.inputs[0])
        bases = {base_of.get(name, name) for name in node.mutates}
        views = (name for name, base in base_of.items() if base in bases)
        overwritten = dict.fromkeys((*node.mutates, *sorted(bases), *views)) if node.mutates else ()
        found.append(replace(node, mutates=tuple(overwritten)))
    return tuple(found)
