"""The nodes of the graph, and so the model lines, that the lines of a generated kernel come from.

Neither Inductor nor Triton records it. What is recorded is the node that each buffer holds; between the loads and the
stores of a kernel its expressions are compared with the operators of the graph and their operands. A line for which
that gives no single answer has no origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Kernel, Manifest, ModelLine, Site
from aoti_debug.package.reference.program import Graph, Reference
from aoti_debug.runs.kernel_source.result_slices import kernel_slices, statements
from aoti_debug.runs.kernel_source.statements import Statement
from aoti_debug.runs.show.fx_nodes import own_nodes
from aoti_debug.views.kernel_code.expression_values import NUMBER, UNKNOWN, CodeValue, ExpressionValues
from aoti_debug.views.kernel_code.graph_values import GraphValues
from aoti_debug.views.kernel_code.infer_backwards import adds_to_its_target, backwards

_CHECKS = ("AOTI_TORCH_CHECK", "tl.device_assert")  # statements that compute nothing


class StatementNodes:
    """Follows the values of the graph through the statements of a kernel, as a site launches it.

    Args:
        graph: the graph of the site.
        parameters: the launch's arguments by parameter.
    """

    def __init__(
        self, kernel: Kernel, site: Site, manifest: Manifest, graph: Graph, parameters: Mapping[str, str]
    ) -> None:
        self._graph = graph
        self._values = GraphValues(graph)
        self._own = frozenset(name for name in own_nodes(site, manifest.sites) if name in graph.by_name)
        self._expressions = ExpressionValues(graph, self._values, self._own)
        weights = {constant.name: constant.fqn or constant.name for constant in manifest.constants}
        bases = {arg.param: arg.base for arg in site.args}
        self._held = {
            parameter: self._node(name, weights) or self._node(bases[parameter], weights)
            for parameter, name in parameters.items()
        }
        self._written = frozenset(arg.param for arg in site.args if arg.written)
        slices = kernel_slices(kernel, frozenset(parameters))
        self._results = {  # by line: the parameters that it goes into
            line: frozenset(p for p, part in slices.items() if any(o.line == line for o in part.operations))
            for line in {operation.line for part in slices.values() for operation in part.operations}
        }
        self._ancestors = {p: self._values.ancestors(node) for p, node in self._held.items() if node}
        self._memory = {p: self._loaded(p) for p in parameters}
        self._variables: dict[str, CodeValue] = {}

    def nodes(self, code: Sequence[Statement]) -> Mapping[int, str]:
        """The node of the launch that each line computes, or a part of, by line; without lines that are not clear."""
        code = [statement for statement in code if not statement.text.startswith(_CHECKS)]
        aliases = self._aliases(code)
        code = [statement for statement in code if not aliases.keys() & set(statement.targets) or statement.store]
        first = self._forwards(code, aliases)
        completed = backwards(code, first, self._values, self._own)
        found: dict[int, CodeValue] = {}
        for statement, loaded, value in zip(code, first, completed, strict=True):
            if statement.store and not self._memory.keys() & {aliases.get(t, t) for t in statement.targets}:
                value = loaded  # an array of its own
            if found.get(statement.line, UNKNOWN).is_unknown:
                found[statement.line] = value
        return {line: name for line, value in found.items() if (name := self._name(value))}

    def _aliases(self, code: Sequence[Statement]) -> Mapping[str, str]:
        """The parameters by their other names, `auto out_ptr0 = in_out_ptr0`."""
        aliases: dict[str, str] = {}
        for statement in code:
            if not statement.store and len(statement.names) == 1:
                (source,) = statement.names
                owner = aliases.get(source, source)
                if owner in self._memory and statement.text.endswith(f"= {source}"):
                    aliases[statement.targets[0]] = owner
        return aliases

    def _forwards(self, code: Sequence[Statement], aliases: Mapping[str, str]) -> list[CodeValue]:
        """The value of each statement, from what it loads."""
        found: list[CodeValue] = []
        final = {target: number for number, s in enumerate(code) if s.store for target in s.targets}
        for number, statement in enumerate(code):
            value = self._value(statement, aliases)
            if statement.store:
                for target in statement.targets:
                    value = self._stored(aliases.get(target, target), value, is_last=final[target] == number)
            else:
                self._variables |= dict.fromkeys(statement.targets, value)
            found.append(value)
        return found

    def _stored(self, parameter: str, value: CodeValue, *, is_last: bool) -> CodeValue:
        """What a store leaves in memory: what is last stored to a parameter is the node that its buffer holds."""
        held = self._held.get(parameter, "")
        if held:
            result = self._values.value(held)
            made = frozenset().union(*(self._values.results(name) for name in value.part_of))
            if result in made or (value.is_unknown and is_last):
                value = CodeValue(frozenset({result}))
        if parameter in self._memory:
            self._memory[parameter] = value
        return value

    def _name(self, value: CodeValue) -> str:
        """The one node of the launch that a value is, or is a part of; "" if there is none or several."""
        names = {self._values.computed(name) for name in (value.nodes & self._own) or value.nodes or value.part_of}
        return names.pop() if len(names) == 1 and names <= self._own else ""

    def _value(self, statement: Statement, aliases: Mapping[str, str]) -> CodeValue:
        def variable(name: str) -> CodeValue:
            owner = aliases.get(name, name)
            return self._memory.get(owner) or self._variables.get(name, UNKNOWN)

        results = self._results.get(statement.line, frozenset())
        allowed = frozenset().union(*(self._ancestors.get(parameter, frozenset()) for parameter in results))
        reduces = adds_to_its_target(statement)
        if not statement.value:
            if not statement.names:
                return NUMBER
            operands = [variable(name) for name in sorted(statement.names)]
            return self._expressions.reduced(operands, allowed) if reduces else UNKNOWN
        return self._expressions.value(statement.value, variable, allowed, reduces=reduces)

    def _node(self, variable: str, weights: Mapping[str, str]) -> str:
        """The node whose value a variable of the wrapper holds; "" if it is unknown."""
        if variable in self._graph.held:
            return self._graph.held[variable]
        if variable in self._graph.by_name:
            return variable
        return self._graph.weights.get(weights.get(variable, ""), "")

    def _loaded(self, parameter: str) -> CodeValue:
        """What a parameter points to before the kernel."""
        held = self._held[parameter]
        if not held or parameter in self._written:
            return UNKNOWN
        value = self._values.value(held)
        return CodeValue(frozenset({value}) | self._values.gathered(value))


@dataclass(frozen=True)
class LineOrigin:
    """The origin of a line of a kernel's source.

    Attributes:
        line: in the source, from 1.
        node: the node of the graph that it computes, or a part of; "" if it only loads.
        module: the module path of the node; "" if it is unknown.
        model_line: of the node; None if it is unknown.
        reads: the launch's arguments that it loads from.
        writes: the launch's argument that it stores to; "" if it stores none.
    """

    line: int
    node: str = ""
    module: str = ""
    model_line: ModelLine | None = None
    reads: tuple[str, ...] = ()
    writes: str = ""


def line_origins(
    kernel: Kernel, site: Site, manifest: Manifest, reference: Reference | None
) -> Mapping[int, LineOrigin]:
    """The origins of the lines of a kernel, as a site launches it, by line.

    Args:
        reference: None if the package holds no graph: then the lines have arguments only.
    """
    parameters = {arg.param: arg.name for arg in site.args if arg.param and arg.base}
    pointers = frozenset(parameters)
    graph = reference.graph(site.subgraph, site.function) if reference is not None else None
    code = statements(kernel, pointers)
    nodes = {} if graph is None else StatementNodes(kernel, site, manifest, graph, parameters).nodes(code)
    origins: dict[int, LineOrigin] = {}
    for statement in code:
        name = nodes.get(statement.line)
        node = graph.by_name[name] if graph is not None and name else None
        writes = next((parameters[name] for name in statement.targets if name in pointers), "")
        origin = LineOrigin(
            statement.line,
            node.name if node else "",
            node.module if node else "",
            reference.line(node) if reference is not None and node else None,
            tuple(parameters[name] for name in sorted(statement.names & pointers)),
            writes if statement.store else "",
        )
        if origin != LineOrigin(statement.line):
            origins[statement.line] = origin
    return origins
