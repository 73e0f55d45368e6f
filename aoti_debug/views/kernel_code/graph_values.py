"""The values of a graph as a kernel sees them: without views and conversions, with the operators that read them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from aoti_debug.package.reference.program import Graph, Node, NodeKind

_SAME_VALUE = frozenset(
    (
        "view",
        "_unsafe_view",
        "reshape",
        "permute",
        "transpose",
        "t",
        "expand",
        "unsqueeze",
        "squeeze",
        "clone",
        "slice",
        "select",
        "alias",
        "contiguous",
        "detach",
        "as_strided",
        "diagonal",
        "unfold",
        "lift_fresh_copy",
        "convert_element_type",
        "_to_copy",
        "copy",
        "_conj",
        "repeat",
    )
)
_GATHERS = frozenset(("embedding", "index", "gather", "index_select", "take", "_unsafe_index"))
_REDUCTIONS = frozenset(
    (
        "sum",
        "mean",
        "var_mean",
        "var",
        "std",
        "amax",
        "amin",
        "max",
        "min",
        "argmax",
        "argmin",
        "prod",
        "any",
        "all",
        "norm",
        "linalg_vector_norm",
        "logsumexp",
        "cumsum",
        "cumprod",
        "native_layer_norm",
        "aminmax",
        "prepare_softmax_online",
    )
)


def operator(node: Node) -> str:
    """The operator's name without namespace and overload: "add" of "aten.add.Tensor"; "" of what is no call."""
    parts = node.target.split(".")
    return parts[1] if node.kind is NodeKind.CALL and len(parts) > 1 else ""


class GraphValues:
    """The values of one graph: a view, a copy or a conversion of a value counts as that value.

    Args:
        graph: the graph that a kernel was generated from.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[str, str] = {}

    def value(self, name: str) -> str:
        """The node that computed what a node holds: the node itself, unless it is a view, a copy or a conversion."""
        if name not in self._values:
            node = self._graph.by_name[name]
            moved = operator(node) in _SAME_VALUE and node.inputs
            self._values[name] = self.value(node.inputs[0]) if moved else name
        return self._values[name]

    def computed(self, name: str) -> str:
        """The call that computed the value of a node: that which returned the tuple, for a member of one."""
        node = self._graph.by_name[self.value(name)]
        return node.inputs[0] if node.is_member else node.name

    def reduces(self, name: str) -> bool:
        """True if a node combines the elements of a row: its kernel has intermediate results."""
        return operator(self._graph.by_name[name]) in _REDUCTIONS

    def inputs(self, name: str) -> frozenset[str]:
        """The values that a node is computed from; a member of a tuple is one of its own."""
        return frozenset(self.value(read) for read in self._graph.by_name[name].inputs)

    def results(self, name: str) -> frozenset[str]:
        """The values that a node returns: its own, or the members of its tuple."""
        return self._members.get(name, frozenset()) | {name}

    def gathered(self, name: str) -> frozenset[str]:
        """The nodes that read single elements of a value by an index, or read by it as an index."""
        return frozenset(filter(self.gathers, self.readers(name)))

    def gathers(self, name: str) -> bool:
        """True if a node reads elements by an index: a kernel does that where it loads, before what the node reads."""
        return operator(self._graph.by_name[name]) in _GATHERS

    def readers(self, name: str) -> frozenset[str]:
        """The nodes that compute something from a value."""
        return self._readers.get(name, frozenset())

    def ancestors(self, name: str) -> frozenset[str]:
        """A node and all nodes that it is computed from."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += self._graph.by_name[node].inputs
        return frozenset(found)

    @cached_property
    def _readers(self) -> Mapping[str, frozenset[str]]:
        readers: dict[str, set[str]] = {}
        for node in self._graph.nodes:
            if node.kind is NodeKind.CALL and not node.is_member and self.value(node.name) == node.name:
                for read in self.inputs(node.name):
                    readers.setdefault(read, set()).add(node.name)
        return {name: frozenset(nodes) for name, nodes in readers.items()}

    @cached_property
    def _members(self) -> Mapping[str, frozenset[str]]:
        members: dict[str, set[str]] = {}
        for node in self._graph.nodes:
            if node.is_member and node.inputs:
                members.setdefault(node.inputs[0], set()).add(node.name)
        return {name: frozenset(nodes) for name, nodes in members.items()}
