"""The operators that a fused kernel holds, from the graph that it was generated from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aoti_debug.call_text.call import Call, CallTensor, list_text
from aoti_debug.call_text.operator_arguments import operator_name
from aoti_debug.call_text.tensor_numbers import TensorNumbers
from aoti_debug.manifest import Manifest, Site
from aoti_debug.reference.program import Graph, Node, NodeKind, Reference, TensorType
from aoti_debug.show.fx_nodes import own_nodes

_GETITEM = "_operator.getitem"


class FusedOperators:
    """Tells the operators of launch sites.

    Args:
        reference: None if the package holds no graph.
    """

    def __init__(self, manifest: Manifest, reference: Reference | None) -> None:
        self._manifest = manifest
        self._reference = reference
        self._weights = {constant.fqn or constant.name: constant.name for constant in manifest.constants}

    def of_site(self, site: Site, numbers: TensorNumbers) -> tuple[Call, ...]:
        """The operators of a site in the order of the graph; () if they are not known.

        Args:
            numbers: of the tensors that launches have named so far.
        """
        graph = None if self._reference is None else self._reference.graph(site.subgraph, site.function)
        if graph is None:
            return ()
        names = graph.sorted(name for name in own_nodes(site, self._manifest.sites) if name in graph.by_name)
        nodes = (graph.by_name[name] for name in names)
        words = _Words(graph, self._weights, numbers)
        return tuple(words.call(node) for node in nodes if node.kind is NodeKind.CALL and node.target != _GETITEM)


class _Words:
    """The text of the nodes of a graph."""

    def __init__(self, graph: Graph, weights: Mapping[str, str], numbers: TensorNumbers) -> None:
        self._graph = graph
        self._weights = weights
        self._numbers = numbers
        self._buffers = {node: buffer for buffer, node in graph.held.items()}

    def call(self, node: Node) -> Call:
        arguments = [self._text(item) for item in node.args]
        arguments += [f"{name}={self._text(item)}" for name, item in node.kwargs.items()]
        several = len(node.types) > 1
        outputs = tuple(
            self._tensor(node.name, f"%{node.name}{f'[{index}]' if several else ''}", type_)
            for index, type_ in enumerate(node.types)
            if type_ is not None
        )
        target = node.target
        name = operator_name(target) if target.count(".") == 2 else target
        return Call(name, tuple(arguments), tuple(map(str, outputs)), node.module, outputs)

    def _text(self, value: Any) -> str:
        if isinstance(value, list | tuple):
            return list_text([self._text(item) for item in value])
        if not isinstance(value, Mapping):
            return repr(value)
        ((kind, content),) = value.items()
        if kind == "node":
            return self._node(content)
        if isinstance(content, Mapping):
            return f"{{{', '.join(f'{name}: {self._text(item)}' for name, item in content.items())}}}"
        return self._text(content) if isinstance(content, list | tuple) else str(content)

    def _node(self, name: str) -> str:
        node = self._graph.by_name[name]
        if node.target == _GETITEM:
            origin, index = node.args[0]["node"], node.args[1]
            return str(self._tensor(name, f"%{origin}[{index}]", node.types[0] if node.types else None))
        if not node.types:
            return node.size or f"%{name}"
        return str(self._tensor(name, f"%{name}", node.types[0]))

    def _tensor(self, name: str, otherwise: str, type_: TensorType | None) -> CallTensor:
        """A tensor under the number of the variable that holds it, if a launch has named that."""
        node = self._graph.by_name[name]
        weight = self._weights.get(node.target, "") if node.kind is NodeKind.WEIGHT else ""
        of_graph = f"{self._graph.name}_{name}" if self._graph.name else name
        variable = weight or self._buffers.get(name, of_graph)
        id_ = self._numbers.id(variable) if variable in self._numbers else otherwise
        return CallTensor(id_, "", ()) if type_ is None else CallTensor(id_, type_.dtype, type_.shape)
