"""Writes the part of a graph that a launch computes as the source of a torch.nn.Module, whose calls torch.fx can trace.

A pure text generator: a region and its graph in, Python source out.
"""

from __future__ import annotations

import dataclasses
import keyword
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.evaluate.functions import WITHOUT_VALUE
from aoti_debug.compare.protocol.request import Region
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.program_graphs import USER_TRITON, Graph, Node, NodeKind, Reference, ValueKey
from aoti_debug.repro import literals

CLASS = "Launch"
HINT = "aoti-debug repro without --fx replays the kernel itself"
_NAMES = ("math", "operator", "argparse", "Path", "load", "compare", "INPUTS", "OUTPUTS", CLASS)  # of the script
_NAMESPACES = ("aten", "prims", "math", "_operator", "torch", "aoti_debug")  # of operators that come with torch
_OBJECTS = {"dtype": "torch.{}", "layout": "torch.{}", "memory_format": "torch.{}"}


@dataclass(frozen=True, kw_only=True)
class ModuleText:
    """The source of a module.

    Attributes:
        source: of the class.
        inputs: the arguments of `forward`, in order, each with the value that it stands for.
        outputs: what `forward` returns, in order: names of nodes.
        calls: how many operators it calls.
        imports: modules that the source needs beside torch.
        custom: operators in it that do not come with torch.
    """

    source: str
    inputs: Mapping[str, ValueKey]
    outputs: tuple[str, ...]
    calls: int
    imports: tuple[str, ...]
    custom: tuple[str, ...]


def in_full(line: ModelLine) -> str:
    """A model line for the eyes of its author."""
    return f"{line.file}:{line.line} in {line.function}: {line.text}"


def without_folder(line: ModelLine) -> str:
    """A model line for the public: neither the folder nor the code."""
    return f"{PurePath(line.file).name}:{line.line} in {line.function}"


def module_text(
    reference: Reference, graph: Graph, region: Region, worded: Callable[[ModelLine], str] = in_full
) -> ModuleText:
    """The source of a region.

    Args:
        worded: the text of a comment with a model line.

    Raises:
        UsageError: an operator in it has no form in such a module.
    """
    return _Writer(reference, graph, region, worded).text()


@dataclasses.dataclass
class _Writer:
    reference: Reference
    graph: Graph
    region: Region
    worded: Callable[[ModelLine], str]
    _lines: list[str] = dataclasses.field(default_factory=list)
    _constants: list[str] = dataclasses.field(default_factory=list)
    _imports: dict[str, None] = dataclasses.field(default_factory=dict)
    _expressions: dict[ValueKey, str] = dataclasses.field(default_factory=dict)
    _last_line: ModelLine | None = None

    def text(self) -> ModuleText:
        keys = [item.value for item in self.region.inputs]
        nodes = [self.graph.by_name[name] for name in self.region.nodes]
        copies = [_copy_of(name, node) for node in nodes for name in node.inputs if name in node.mutates]
        self._names = literals.identifiers([*map(str, keys), *self.region.nodes, *copies], _NAMES)
        self._symbols = Symbols(known=self.region.symbols)
        inputs = {self._names[str(key)]: key for key in keys}
        self._expressions |= {key: name for name, key in inputs.items()}
        calls = 0
        for node in nodes:
            if node.kind is not NodeKind.CALL or node.size:
                self._constant(node)
            elif node.target not in WITHOUT_VALUE:
                self._call(node)
                calls += 1
        outputs = [item.value for item in self.region.outputs] or self._last(nodes)
        returned = ", ".join(self._expressions[key] for key in outputs)
        lines = [
            f"class {CLASS}(torch.nn.Module):",
            *(["    def __init__(self) -> None:", "        super().__init__()"] if self._constants else []),
            *(f"        {line}" for line in self._constants),
            *([""] if self._constants else []),
            f"    def forward(self, {', '.join(inputs)}):" if inputs else "    def forward(self):",
            *(f"        {line}" for line in self._lines),
            f"        return ({returned},)",
        ]
        custom = tuple(dict.fromkeys(n.target for n in nodes if n.target and _is_custom(n)))
        source = "\n".join(lines) + "\n"
        return ModuleText(
            source=source,
            inputs=inputs,
            outputs=tuple(map(str, outputs)),
            calls=calls,
            imports=tuple(self._imports),
            custom=custom,
        )

    def _last(self, nodes: Sequence[Node]) -> list[ValueKey]:
        """The values that no node of the region reads, of a launch that wrote none."""
        read = {name for node in nodes for name in node.inputs}
        return [ValueKey(n.name) for n in nodes if n.kind is NodeKind.CALL and n.name not in read and not n.size]

    def _constant(self, node: Node) -> None:
        """Binds a node that is not computed: a size, or a weight whose elements the graph holds."""
        key = ValueKey(node.name)
        if node.size:
            self._expressions[key] = str(self._size(node.size))
            return
        type_ = node.types[0] if len(node.types) == 1 else None
        if type_ is None or not (node.is_empty or node.value is not None):
            raise UsageError(f"the weight {node.name} was not recorded with this launch", hint=HINT)
        shape = ", ".join(str(self._size(size)) for size in type_.shape)
        elements = f"[{', '.join(map(self._argument, node.value or ()))}]"
        value = f"torch.tensor({elements}, dtype=torch.{type_.dtype}).reshape({shape or '()'})"
        self._constants.append(f"self.register_buffer({literals.text(self._names[node.name])}, {value})")
        self._expressions[key] = f"self.{self._names[node.name]}"

    def _call(self, node: Node) -> None:
        self._say_line(node)
        for name in node.inputs:
            if name in node.mutates:
                self._copy(name, node)
        self._reader = node
        arguments = [self._argument(item) for item in node.args]
        named = {name: self._argument(item) for name, item in node.kwargs.items()}
        arguments += [f"{name}={text}" for name, text in named.items() if not keyword.iskeyword(name)]
        odd = [f"{literals.text(name)}: {text}" for name, text in named.items() if keyword.iskeyword(name)]
        arguments += [f"**{{{', '.join(odd)}}}"] if odd else []
        name = self._names[node.name]
        self._lines.append(f"{name} = {self._expression(node, arguments)}")
        self._expressions[ValueKey(node.name)] = name

    def _copy(self, name: str, node: Node) -> None:
        """Has a node overwrite a copy of what it overwrites."""
        key = ValueKey(name, node.name)
        copy = self._names[_copy_of(name, node)]
        self._lines.append(f"{copy} = {self._value(name, node)}.clone()")
        self._expressions[key] = copy

    def _expression(self, node: Node, arguments: list[str]) -> str:
        parts = node.target.split(".")
        if node.target.startswith(USER_TRITON):
            raise UsageError("it is a Triton kernel of the user's own: no operator stands for it", hint=HINT)
        if parts[0] == "higher_order":
            raise UsageError(f"{parts[1]} has no form in such a module", hint=HINT)
        if node.is_member and len(arguments) == 2:
            return f"{arguments[0]}[{arguments[1]}]"
        if parts[0] == "prims":
            self._imports["torch._inductor.inductor_prims"] = None
        if len(parts) == 3 and parts[0] not in ("math", "_operator"):
            function = f"torch.ops.{node.target}"
        else:
            module = {"_operator": "operator"}.get(parts[0], parts[0])
            if module != "torch":
                self._imports[module] = None
            function = ".".join((module, *parts[1:]))
        return f"{function}({', '.join(arguments)})"

    def _argument(self, value: Any) -> str:
        """The source of an argument (see aoti_debug.package.program_graphs)."""
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self._argument, value))}]"
        if not isinstance(value, Mapping):
            return literals.text(value) if isinstance(value, str) else repr(value)
        ((kind, content),) = value.items()
        match kind:
            case "node":
                return self._value(content, self._reader)
            case "size":
                return str(self._size(content))
            case "float":
                return f'float("{float(content)}")'
            case "complex":
                return f"complex({', '.join(literals.number(float(part)) for part in content)})"
            case "device":
                return f"torch.device({literals.text(content)})"
            case "dict":
                return "{" + ", ".join(f"{literals.text(k)}: {self._argument(v)}" for k, v in content.items()) + "}"
            case "slice":
                return f"slice({', '.join(map(self._argument, content))})"
        if kind in _OBJECTS:
            return _OBJECTS[kind].format(content)
        raise UsageError(f"an argument of {self._reader.target} has no form in Python: {kind} {content}", hint=HINT)

    def _value(self, name: str, reader: Node) -> str:
        """The expression of the value of a node that another reads."""
        key = ValueKey(name, reader.name)
        if key not in self._expressions or name not in reader.mutates:
            key = self.graph.value_for(name, reader.name)
        if key not in self._expressions:
            raise UsageError(f"{reader.name} depends on {name}, which was not recorded", hint=HINT)
        return self._expressions[key]

    def _size(self, expression: str) -> int:
        value = self._symbols.value(expression)
        if value is None:
            raise UsageError(f"the size {expression} is not known", hint=HINT)
        return value

    def _say_line(self, node: Node) -> None:
        line = self.reference.line(node)
        if line is not None and line != self._last_line:
            self._lines.append(literals.comment(self.worded(line)))
            self._last_line = line


def _copy_of(name: str, node: Node) -> str:
    """The label of the copy that a node overwrites in place of another's result."""
    return f"{name} in {node.name}"


def _is_custom(node: Node) -> bool:
    return node.kind is NodeKind.CALL and node.target.split(".")[0] not in _NAMESPACES
