"""The reference of a package: the graphs that its kernels were generated from, and the value that each buffer holds.

It is plain JSON (`aoti_debug_reference.json` in the package). These frozen dataclasses are its only specification;
`from_json` is the inverse of `to_json`. Nothing here imports torch.

The arguments of a node are JSON values. Numbers, text, true, false, null and lists stand for themselves; every other
value is an object with one member:

    {"node": "addmm"}            the result of another node
    {"size": "2*s77"}            a symbolic size
    {"float": "inf"}             a float that JSON lacks: "inf", "-inf", "nan"
    {"complex": [1.0, 0.0]}
    {"dtype": "float32"}, {"device": "cuda:0"}, {"layout": "strided"}, {"memory_format": "contiguous_format"}
    {"slice": [null, 4, 1]}, {"operator": "aten.add.Tensor"}, {"dict": {"out": {"node": "empty"}}}
    {"unknown": "Generator"}     a value of a type that has no form here: the node cannot be evaluated
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.package.manifest import ModelLine

FORMAT = 1
MEMBER = "aoti_debug_reference.json"
EXPORTED_MEMBER = "aoti_debug_exported.json"  # of a package that its program is not lowered to here
HIGHER_ORDER = "higher_order."  # how the targets of operators that take graphs begin
USER_TRITON = f"{HIGHER_ORDER}triton_kernel_wrapper"  # how the targets of user-defined Triton kernels begin
MODEL, FOLDING = "run_impl", "_const_run_impl"  # the functions that a graph can be compiled to
RESHAPE = "aten.reshape.default"  # a view where there is one, or else a copy
MEMBER_OF = "_operator.getitem"
SEVERAL_SEEDS = "prims.inductor_seeds.default"
SEEDS = (SEVERAL_SEEDS, "prims.inductor_seed.default")  # operators that draw the seeds of random numbers
EXPORTED = "exported"  # the function of a graph before Inductor's decompositions and passes: none is compiled from it

_VIEWS_OF_PARTS = ("split", "split_with_sizes", "unbind")
_VIEWS = frozenset(
    {"permute", "view", "expand", "slice", "select", "transpose", "t", "unsqueeze", "squeeze", "alias", "diagonal"}
    | {"detach", "unfold", "_unsafe_view", "view_as_real", "view_as_complex", "as_strided", *_VIEWS_OF_PARTS}
)

_CASTS = frozenset(
    {"aten._to_copy.default", "aten.type_as.default", "prims.convert_element_type.default"}
    | {"aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.to.other"}
)
_MOVES = frozenset(
    {"cat", "stack", "index", "index_select", "gather", "embedding", "clone", "contiguous", "copy", "flip", "roll"}
    | {"repeat", "expand_as", "reshape", "flatten", "unflatten", "chunk", "where", "constant_pad_nd", "pad"}
    | {"lift_fresh_copy", "empty", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like"}
)


class NodeKind(str, Enum):
    """The kind of a node."""

    INPUT = "input"
    WEIGHT = "weight"  # a weight, a buffer or a folded constant of the model
    SUBGRAPH = "subgraph"  # the body of a branch or a loop
    CALL = "call"
    OUTPUT = "output"


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor; sizes and strides are expressions: "16", "2*s77"."""

    dtype: str  # "float32"
    device: str  # "cpu", "cuda:0"
    shape: tuple[str, ...]
    strides: tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """A node of a graph.

    Attributes:
        target: the operator of a call ("aten.addmm.default", "_operator.getitem", "higher_order.cond"), the attribute
            of a weight ("linear.weight"), the graph of a branch or loop ("true_graph_0").
        types: the types of its result: one for a tensor, one for each member of a tuple, None for other values.
        size: the expression of a result that is a number, "s77"; "" for others.
        line: the index of its model line in `Reference.lines`; -1 if it is unknown.
        module: path of the module that it belongs to, "encoder.layers.0"; "" if it is unknown.
        mutates: the nodes whose tensors it overwrites; with a view, of a graph that is lowered, what it is a view of.
        value: the elements of a small weight that is never overwritten, row-major: Inductor writes such weights into
            the source of kernels, as numbers. None for others.
        initial: of a small weight of an exported program, the elements that it begins with, row-major. None for others.
        lowered: the dtype that Inductor's lowering gave its result; "" if it is that of `types`, or not known.
    """

    name: str
    kind: NodeKind
    target: str = ""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    types: tuple[TensorType | None, ...] = ()
    size: str = ""
    line: int = -1
    module: str = ""
    mutates: tuple[str, ...] = ()
    value: tuple[Any, ...] | None = None
    initial: tuple[Any, ...] | None = None
    lowered: str = ""

    @property
    def is_member(self) -> bool:
        """True if it takes one of the several results of its first input."""
        return self.target == MEMBER_OF

    @property
    def is_empty(self) -> bool:
        """True for an input or a weight without elements: no launch needs to read it."""
        given = self.kind in (NodeKind.INPUT, NodeKind.WEIGHT) and len(self.types) == 1
        return given and self.types[0] is not None and "0" in self.types[0].shape

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The nodes that it reads, each once."""
        return tuple(dict.fromkeys((*nodes_in(list(self.args)), *nodes_in(list(self.kwargs.values())))))


@dataclass(frozen=True)
class ValueKey:
    """A value: the result of a node, or what a later node has made of it in place.

    Attributes:
        after: the last node that overwrote it; "" for the node's own result.
    """

    node: str
    after: str = ""

    def __str__(self) -> str:
        return f"{self.node} after {self.after}" if self.after else self.node


@dataclass(frozen=True)
class BufferValue:
    """The node whose value a buffer holds."""

    buffer: str  # the C++ variable: "buf3", "true_graph_0_buf1"
    node: str


@dataclass(frozen=True)
class Graph:
    """A graph: the model's, that of constant folding, or the body of a branch or loop.

    Attributes:
        name: "" for a whole function, "true_graph_0" for a branch.
        function: MODEL, FOLDING or EXPORTED.
        nodes: in the order of execution. The output node of an exported program returns what the user gets; its
            keyword arguments are what replaces weights and buffers, by their names, after a call.
    """

    name: str
    function: str
    nodes: tuple[Node, ...]
    buffers: tuple[BufferValue, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def held(self) -> Mapping[str, str]:
        """The node whose value each buffer holds, by buffer."""
        return {value.buffer: value.node for value in self.buffers}

    @cached_property
    def weights(self) -> Mapping[str, str]:
        """The nodes of weights, by the attribute of the model."""
        return {node.target: node.name for node in self.nodes if node.kind is NodeKind.WEIGHT}

    @cached_property
    def mutators(self) -> Mapping[str, tuple[str, ...]]:
        """The nodes that overwrite the result of a node, in their order, by the overwritten node."""
        mutators: dict[str, tuple[str, ...]] = {}
        for node in self.nodes:
            for overwritten in node.mutates:
                mutators[overwritten] = (*mutators.get(overwritten, ()), node.name)
        return mutators

    def value_for(self, name: str, reader: str) -> ValueKey:
        """The value of the node `name` that the node `reader` reads."""
        earlier = [m for m in self.mutators.get(name, ()) if self._order[m] < self._order[reader]]
        return ValueKey(name, earlier[-1] if earlier else "")

    def last_readers(self, names: Iterable[str]) -> Mapping[str, frozenset[str]]:
        """The nodes whose values some nodes, in order, read for the last time, or never, by that node."""
        last: dict[str, str] = {}
        for name in names:
            read = [*self.by_name[name].inputs]
            for item in read:
                read += self.by_name[item].inputs if self.is_overwritten_through(item) else ()
            last |= dict.fromkeys((name, *read), name)
        uses: dict[str, set[str]] = defaultdict(set)
        for name, reader in last.items():
            uses[reader].add(name)
        return {reader: frozenset(read) for reader, read in uses.items()}

    def is_overwritten_through(self, view: str) -> bool:
        """True if a node overwrites a view and what it is a view of, in which its value is found then."""
        base = next(iter(self.by_name[view].inputs), "")
        shared = {*self.mutators.get(view, ())} & {*self.mutators.get(base, ())}
        return bool(shared) and is_view(self.by_name[view])

    def base_of(self, value: ValueKey) -> ValueKey | None:
        """The value of the tensor that was overwritten together with a view of it; None for any other value."""
        view = self.by_name[value.node]
        if not value.after or not is_view(view) or view.inputs[0] not in self.by_name[value.after].mutates:
            return None
        return ValueKey(view.inputs[0], value.after)

    def viewed(self, node: Node) -> Node | None:
        """The node that a node's result, or a member of it, is a view of, or reshaped from; None if it is neither."""
        if not node.inputs or not (is_view(node) or node.is_member or node.target == RESHAPE):
            return None
        base = self.by_name[node.inputs[0]]
        is_part = is_view(base) and operator_name(base.target) in _VIEWS_OF_PARTS
        return None if node.is_member and not is_part else base

    def behind(self, name: str) -> tuple[Node, ...]:
        """The nodes that a node depends on, and itself; also those that overwrite what it reads."""
        found: dict[str, Node] = {}
        waiting = [name]
        while waiting:
            node = self.by_name[waiting.pop()]
            if node.name not in found:
                found[node.name] = node
                waiting += (*node.inputs, *self.mutators.get(node.name, ()))
        return tuple(found.values())

    def sorted(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names of nodes in the order of execution, each once."""
        return tuple(sorted(set(names), key=self._order.__getitem__))

    @cached_property
    def _order(self) -> Mapping[str, int]:
        return {node.name: position for position, node in enumerate(self.nodes)}


@dataclass(frozen=True)
class Reference:
    """The graphs of a package.

    Attributes:
        failure: why a graph is missing or incomplete; "" if none is.
        exported: the graph of the exported program, and those of its branches and loops; () if they are not known.
            Nodes overwrite tensors in place there, and views of them.
        exported_failure: why they are not known; "" if they are, or if the program is not known either.
    """

    format: int
    torch_version: str
    graphs: tuple[Graph, ...]
    lines: tuple[ModelLine, ...] = ()
    failure: str = ""
    exported: tuple[Graph, ...] = ()
    exported_failure: str = ""

    def graph(self, name: str, function: str) -> Graph | None:
        """The graph of a name and function; None if there is none."""
        return next((graph for graph in self.graphs if (graph.name, graph.function) == (name, function)), None)

    @cached_property
    def of_exported(self) -> Reference | None:
        """The exported program's graphs as a reference of their own; None if they are not known."""
        return replace(self, graphs=self.exported, exported=()) if self.exported else None

    @cached_property
    def dtypes(self) -> frozenset[str]:
        """The dtypes of all values that are lowered."""
        nodes = (node for graph in self.graphs for node in graph.nodes)
        return frozenset(type_.dtype for node in nodes for type_ in node.types if type_ is not None)

    def dtypes_behind(self, index: int) -> frozenset[str]:
        """The dtypes of all values that an output of the model depends on, by its number from 0.

        In the graph that is lowered and in the exported program; all dtypes if the output is not known.
        """
        whole = self.graph("", MODEL)
        graphs = [graph for graph in (whole, *self.exported[:1]) if graph is not None]
        found: set[str] = set()
        for graph in graphs:
            names = returned_nodes(graph)
            if index >= len(names):
                return self.dtypes
            nodes = graph.behind(names[index]) if names[index] else ()
            if any(node.kind is NodeKind.SUBGRAPH for node in nodes):
                return self.dtypes
            found.update(type_.dtype for node in nodes for type_ in node.types if type_ is not None)
        return frozenset(found) if graphs else self.dtypes

    def computed_behind(self, index: int) -> frozenset[str]:
        """The dtypes of the results of operators that compute which an output of the exported program depends on.

        Casts, and operators that only move elements, do not compute. All dtypes behind the output if that is not known.
        """
        if not self.exported:
            return self.dtypes_behind(index)
        graph = self.exported[0]
        names = returned_nodes(graph)
        nodes = graph.behind(names[index]) if index < len(names) and names[index] else ()
        if not nodes or any(node.kind is NodeKind.SUBGRAPH for node in nodes):
            return self.dtypes_behind(index)
        computing = (node for node in nodes if node.kind is NodeKind.CALL and not is_cast(node) and not is_move(node))
        return frozenset(type_.dtype for node in computing for type_ in node.types if type_ is not None)

    def line(self, node: Node) -> ModelLine | None:
        """The model line of a node; None if it is unknown."""
        return self.lines[node.line] if 0 <= node.line < len(self.lines) else None


def is_view(node: Node) -> bool:
    """True if a node's result is a view of its first argument: other sizes and strides of the same memory."""
    return node.target.startswith("aten.") and node.target.split(".")[1] in _VIEWS and bool(node.inputs)


def is_cast(node: Node) -> bool:
    """True if a node only converts a tensor to another dtype, device or layout."""
    return node.target in _CASTS


def is_move(node: Node) -> bool:
    """True if a node only moves or copies elements, or takes one of several results."""
    return is_view(node) or node.is_member or node.target.partition(".")[2].partition(".")[0] in _MOVES


def operator_name(target: str) -> str:
    """The name of an operator without namespace and overload: "permute" of "aten.permute.default"."""
    return target.split(".")[1] if "." in target else target


def keeps_numbers(operator: str) -> bool:
    """True for an operator of ATen that only moves or copies elements, by its name: "aten.permute.default"."""
    return operator.partition(".")[2].partition(".")[0] in _VIEWS | _MOVES


def returned_nodes(graph: Graph) -> list[str]:
    """The node of each output of a graph; "" for one that is no node."""
    (values,) = graph.nodes[-1].args
    return [value.get("node", "") if isinstance(value, Mapping) else "" for value in values]


def nodes_in(value: Any) -> Iterator[str]:
    """The names of the nodes in an argument, at any depth."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from nodes_in(item)
    elif isinstance(value, Mapping):
        if isinstance(name := value.get("node"), str):
            yield name
        else:
            yield from nodes_in(list(value.values()))


def to_json(reference: Reference) -> str:
    """The reference as JSON text (UTF-8, one object)."""
    return json.dumps(_plain(reference), separators=(",", ":"))


def from_json(text: str | bytes) -> Reference:
    """Parses a reference.

    Raises:
        ArtifactError: the text is not a reference, or has another format version.
    """
    try:
        return json_data.from_data(Reference, json_data.parse_versioned(text, FORMAT))
    except json_data.OtherFormatError as error:
        raise ArtifactError(
            f"the reference has {error}", hint="build the package again with this version of aoti-debug"
        ) from error
    except json_data.DamagedJsonError as error:
        raise ArtifactError(f"the reference is damaged: {error}", hint="build the package again") from error


def _plain(value: Any) -> Any:
    """Data for JSON, without the members of a dataclass that have their default."""
    if is_dataclass(value) and not isinstance(value, type):
        members = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: _plain(member) for field, member in members if member not in (field.default, {})}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value
