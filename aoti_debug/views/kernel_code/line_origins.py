"""The nodes of the graph, and so the model lines, that the lines of a generated kernel come from.

Neither Inductor nor Triton records it. What is recorded is the node that each buffer holds; between the loads and the
stores of a kernel its expressions are compared with the operators of the graph and their operands. A line for which
that gives no single answer has no origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Kernel, Manifest, ModelLine, Site
from aoti_debug.package.origins import own_nodes
from aoti_debug.package.program_graphs import Graph, Reference
from aoti_debug.runs.kernel_source.arithmetic import Statement
from aoti_debug.runs.kernel_source.result_slices import kernel_slices, statements
from aoti_debug.views.kernel_code.expression_values import NUMBER, UNKNOWN, CodeValue, ExpressionValues, GraphValues

_CHECKS = ("AOTI_TORCH_CHECK", "tl.device_assert")  # statements that compute nothing


def adds_to_its_target(statement: Statement) -> bool:
    """True for a step of a reduction: `acc = acc + x`, `_acc = tl.where(mask, x + _acc_next, _acc)`."""
    names = {_accumulator(name) for name in statement.names}
    return not statement.store and any(_accumulator(target) in names for target in statement.targets)


def _accumulator(name: str) -> str:
    return name.lstrip("_").removesuffix("_next").removesuffix("_vec")


def backwards(
    code: Sequence[Statement], values: Sequence[CodeValue], graph: GraphValues, own: frozenset[str]
) -> list[CodeValue]:
    """The values of the statements; those that are not known are what a later statement needs, where only one fits.

    Args:
        values: of each statement, as far as known from what it loads.
        own: the nodes that the launch computes.
    """
    return _Backwards(graph, own).all(code, values)


class _Backwards:
    def __init__(self, graph: GraphValues, own: frozenset[str]) -> None:
        self._graph = graph
        self._own = own
        self._wanted: dict[str, CodeValue] = {}  # by variable or pointer: what the statements below take it for
        self._confirmed: set[str] = set()  # variables whose value a statement below reads as it is known

    def all(self, code: Sequence[Statement], values: Sequence[CodeValue]) -> list[CodeValue]:
        found = list(values)
        known: dict[str, CodeValue] = {}
        operands: list[dict[str, CodeValue]] = []
        for statement, value in zip(code, values, strict=True):
            operands.append({name: known[name] for name in statement.names if name in known})
            known |= dict.fromkeys(statement.targets, value)
        for number in reversed(range(len(code))):
            statement = code[number]
            found[number] = self._completed(statement, found[number])
            self._ask(statement, found[number], operands[number])
        return found

    def _completed(self, statement: Statement, value: CodeValue) -> CodeValue:
        """The value of a statement, with what is wanted of its targets."""
        wanted = [self._wanted[target] for target in statement.targets if target in self._wanted]
        is_confirmed = any(target in self._confirmed for target in statement.targets)
        if not adds_to_its_target(statement):
            for target in statement.targets:
                self._wanted.pop(target, None)
                self._confirmed.discard(target)
        if not wanted or value.is_number:
            return value
        if both := (value.nodes | value.part_of) & wanted[0].nodes:
            return CodeValue(both)
        is_unclear = value.is_unknown or len(value.nodes or value.part_of) > 1
        if is_unclear or (not is_confirmed and self._contradicts(value, wanted[0])):
            return wanted[0]
        return value

    def _contradicts(self, value: CodeValue, wanted: CodeValue) -> bool:
        """True if an intermediate result is wanted, and the value is none of the nodes that lead to it."""
        if not wanted.part_of:
            return False
        leading = frozenset().union(*(self._graph.ancestors(name) for name in wanted.part_of))
        return bool(value.nodes) and not value.nodes & leading

    def _ask(self, statement: Statement, value: CodeValue, operands: dict[str, CodeValue]) -> None:
        """Notes what the operands of a statement must be."""
        names = [name for name, operand in operands.items() if not operand.is_number and name not in statement.targets]
        if value.part_of:
            self._want(dict.fromkeys(names, CodeValue(part_of=value.part_of)), operands)
            return
        if len(value.nodes) != 1:
            return
        (node,) = value.nodes
        if any(operands[name].nodes == value.nodes for name in names):
            self._confirmed |= {name for name in names if operands[name].nodes == value.nodes}
            return
        if node not in self._own and self._graph.computed(node) not in self._own:
            return
        call = self._graph.computed(node)
        if self._graph.reduces(call):
            self._want(dict.fromkeys(names, CodeValue(part_of=frozenset({call}))), operands)
            return
        if _passes_on(statement):
            self._want(dict.fromkeys(names, value), operands)
            return
        inputs = self._graph.inputs(node)
        covering = [name for name in names if operands[name].nodes & inputs]
        self._confirmed |= set(covering)
        self._want({name: CodeValue(operands[name].nodes & inputs) for name in covering}, operands)
        covered = frozenset().union(*(operands[name].nodes for name in covering))
        rest = [name for name in names if name not in covering]
        if len(rest) == 1 and len(inputs - covered) == 1:
            self._want({rest[0]: CodeValue(inputs - covered)}, operands)

    def _want(self, wanted: dict[str, CodeValue], operands: dict[str, CodeValue]) -> None:
        for name, value in wanted.items():
            if len(operands[name].nodes) != 1 or value.part_of:
                self._wanted.setdefault(name, value)


def _passes_on(statement: Statement) -> bool:
    """True if a statement only moves a value: a store of a variable, a conversion, a load."""
    return statement.value in statement.names or statement.value.startswith(("same(", "to_", "load(", "tl.load("))


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
