"""The values of a graph as a kernel sees them, and the nodes that an expression of a generated kernel computes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.program_graphs import Graph, Node, NodeKind

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


_BINARY: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_COMPARES: dict[type[ast.cmpop], str] = dict(
    zip((ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE), ("eq", "ne", "lt", "le", "gt", "ge"), strict=True)
)
_OPERATORS: dict[str, frozenset[str]] = {  # by the function that a kernel calls; others are called as the operator
    "maximum": frozenset({"maximum", "relu", "clamp_min", "clamp"}),
    "clamp_min": frozenset({"clamp_min", "relu", "clamp"}),
    "minimum": frozenset({"minimum", "clamp_max", "clamp"}),
    "clamp_max": frozenset({"clamp_max", "clamp"}),
    "fabs": frozenset({"abs"}),
    "sqrt_rn": frozenset({"sqrt"}),
    "div_rn": frozenset({"div"}),
    "mul": frozenset({"mul", "square", "pow"}),
    "blendv": frozenset({"where"}),
}
_PASSED_ON = ("to_", "same", "load", "static_cast", "broadcast_to", "convert", "to", "reshape", "cast", "float")
_OPERANDS = frozenset({"pointer", "input", "condition", "x", "y", "z", "src"})  # keywords of Triton; others are options
_MODULES = frozenset({"tl", "tl_math", "libdevice", "triton_helpers", "math", "triton"})


@dataclass(frozen=True)
class CodeValue:
    """A value in a kernel, as far as it is known.

    Attributes:
        nodes: the nodes whose value it may be; none: not known.
        part_of: the nodes that it is an intermediate result of, such as a reduction's running sum.
        is_number: true of a constant.
    """

    nodes: frozenset[str] = frozenset()
    part_of: frozenset[str] = frozenset()
    is_number: bool = False

    @property
    def is_unknown(self) -> bool:
        """True if nothing is known about it."""
        return not (self.nodes or self.part_of or self.is_number)


NUMBER = CodeValue(is_number=True)
UNKNOWN = CodeValue()


class ExpressionValues:
    """Finds the nodes that expressions compute, among those of a launch.

    Args:
        own: the nodes that the launch computes.
    """

    def __init__(self, graph: Graph, values: GraphValues, own: frozenset[str]) -> None:
        self._graph = graph
        self._values = values
        self._own = own

    def value(
        self, expression: str, variable: Callable[[str], CodeValue], allowed: frozenset[str], *, reduces: bool
    ) -> CodeValue:
        """The value of an expression in Python's syntax.

        Args:
            variable: the value of a variable, or of what a pointer points to.
            allowed: the nodes that the result of the statement may go into.
            reduces: true if the statement adds to its own target.
        """
        try:
            tree = ast.parse(expression, mode="eval").body
            return _Evaluation(self, variable, self._own & allowed, reduces=reduces).of(tree)
        except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: nested too deeply
            return UNKNOWN

    def applied(
        self, names: frozenset[str], operands: Sequence[CodeValue], candidates: frozenset[str], *, reduces: bool
    ) -> CodeValue:
        """The value of an operator, named as in the graph, applied to operands."""
        known = [operand for operand in operands if not operand.is_number]
        if not known:
            return NUMBER
        if not reduces:
            matching = frozenset(name for name in candidates if self._is(name, names, known))
            if matching:
                return CodeValue(matching)
        read = frozenset(node for operand in known for node in operand.nodes)
        parts = frozenset(node for operand in known for node in operand.part_of) & candidates
        if parts:
            return CodeValue(part_of=parts)
        readers = self._reading(read, candidates)
        reducing = frozenset(filter(self._values.reduces, readers))
        compound = reducing if reduces else frozenset(n for n in readers if not self._is_simple(n)) - reducing
        return CodeValue(part_of=compound)

    def reduced(self, operands: Iterable[CodeValue], candidates: frozenset[str]) -> CodeValue:
        """The value of a reduction of operands along an axis."""
        return self.applied(frozenset(), tuple(operands), candidates, reduces=True)

    def _reading(self, values: frozenset[str], candidates: frozenset[str]) -> frozenset[str]:
        values = values.union(*(self._values.gathered(value) for value in values))
        readers = frozenset(reader for value in values for reader in self._values.readers(value)) & candidates
        return frozenset(reader for reader in readers if not self._values.gathers(reader))

    def _is(self, name: str, names: frozenset[str], operands: Sequence[CodeValue]) -> bool:
        """True if a node has one of the names and reads exactly these operands."""
        if operator(self._graph.by_name[name]) not in names:
            return False
        inputs = self._values.inputs(name)
        possible = [self._possible(operand) for operand in operands]
        covered = all(found is None or found & inputs for found in possible)
        return covered and all(any(found is None or read in found for found in possible) for read in inputs)

    def _possible(self, operand: CodeValue) -> frozenset[str] | None:
        """The values that an operand may be; None: any."""
        if operand.is_unknown:
            return None
        possible = operand.nodes.union(*(self._values.results(name) for name in operand.part_of))
        return possible.union(*(self._values.gathered(name) for name in possible))

    def _is_simple(self, name: str) -> bool:
        called = operator(self._graph.by_name[name])
        return called in {*_BINARY.values(), *_COMPARES.values()} or any(
            called in names for names in _OPERATORS.values()
        )


class _Evaluation:
    """The value of one expression."""

    def __init__(
        self,
        expressions: ExpressionValues,
        variable: Callable[[str], CodeValue],
        candidates: frozenset[str],
        *,
        reduces: bool,
    ) -> None:
        self._expressions = expressions
        self._variable = variable
        self._candidates = candidates
        self._reduces = reduces

    def of(self, node: ast.expr) -> CodeValue:
        match node:
            case ast.Constant():
                return NUMBER
            case ast.Name(id=name):
                return self._variable(name)
            case ast.UnaryOp(operand=operand):
                return self._apply("neg" if isinstance(node.op, ast.USub) else "", (operand,))
            case ast.BinOp(left=left, op=op, right=right):
                return self._apply(_BINARY.get(type(op), ""), (left, right))
            case ast.Subscript(value=value) | ast.Attribute(value=value):
                return self.of(value)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._apply(_COMPARES.get(type(op), ""), (left, right))
            case ast.Call():
                return self._call(node)
        return UNKNOWN

    def _call(self, node: ast.Call) -> CodeValue:
        called = ast.unparse(node.func)
        name = called.rpartition(".")[2]
        receiver, is_method = (node.func.value, True) if isinstance(node.func, ast.Attribute) else (node.func, False)
        if isinstance(receiver, ast.Name) and receiver.id in _MODULES:
            is_method = False
        named = [keyword.value for keyword in node.keywords if keyword.arg in _OPERANDS]
        operands = (*((receiver,) if is_method else ()), *node.args, *named)
        if name in ("full", "zeros", "constexpr"):
            return NUMBER
        if not operands:
            return UNKNOWN
        if name == "load" or name.startswith(_PASSED_ON):
            pointer = next((n.id for n in ast.walk(operands[0]) if isinstance(n, ast.Name)), "")
            return self._variable(pointer) if name == "load" else self.of(operands[0])
        if called.startswith(("tl.sum", "tl.max", "tl.min", "tl.reduce")) or name in ("max2", "min2", "any", "prod"):
            return self._expressions.reduced((self.of(operands[0]),), self._candidates)
        if name == "where" and len(operands) == 3 and isinstance(operands[0], ast.Name) and "mask" in operands[0].id:
            return self.of(operands[1])  # padding beyond the end
        return self._apply(name, operands)

    def _apply(self, name: str, operands: Sequence[ast.expr]) -> CodeValue:
        names = _OPERATORS.get(name, frozenset({name}))
        return self._expressions.applied(names, [self.of(o) for o in operands], self._candidates, reduces=self._reduces)
