"""Functions of Inductor's module of Triton helpers that kernel sources call, cut out of its text."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MODULE = "triton_helpers"


@dataclass(frozen=True)
class Definition:
    """A function, class or value at the top of a module.

    Attributes:
        text: its lines, decorators included.
        uses: names of the module, or of Python, that it refers to.
    """

    name: str
    text: str
    uses: frozenset[str]


def definitions(text: str) -> dict[str, Definition]:
    """The definitions of a module's text by name, in order."""
    lines = text.splitlines(keepends=True)
    found = {}
    for node in ast.parse(text).body:
        for name in _defined(node):
            decorators = node.decorator_list if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
            first = min([node.lineno, *(d.lineno for d in decorators)]) - 1
            found[name] = Definition(name, "".join(lines[first : node.end_lineno]).strip("\n") + "\n", free_names(node))
    return found


def closure(found: Mapping[str, Definition], names: Iterable[str]) -> tuple[Definition, ...]:
    """The named definitions and all that they use, in the order of the text. Names that are not there are left out."""
    wanted, open_ = set(), [name for name in names if name in found]
    while open_:
        name = open_.pop()
        if name not in wanted:
            wanted.add(name)
            open_ += [used for used in found[name].uses if used in found]
    return tuple(definition for name, definition in found.items() if name in wanted)


def helpers_of(sources: Iterable[str], text: str) -> str:
    """What kernel sources use of the text of Inductor's helpers, as a text of its own."""
    names = {name for source in sources for name in attributes_of(ast.parse(source), MODULE)}
    return "\n\n".join(definition.text for definition in closure(definitions(text), names))


def attributes_of(tree: ast.AST, module: str) -> dict[str, list[ast.Attribute]]:
    """Every `module.name` in a tree, by name."""
    found: dict[str, list[ast.Attribute]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module:
            found.setdefault(node.attr, []).append(node)
    return found


def free_names(node: ast.AST) -> frozenset[str]:
    """Names that a definition reads and does not bind itself."""
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    return frozenset(n.id for n in names if isinstance(n.ctx, ast.Load)) - bound_names(node)


def bound_names(node: ast.AST) -> frozenset[str]:
    """Parameters and variables of a function; nothing of other nodes."""
    if not isinstance(node, ast.FunctionDef):
        return frozenset()
    inside = [n for statement in node.body for n in ast.walk(statement)]
    return frozenset(
        [
            *(a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)),
            *(n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)),
        ]
    )


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [target.id for target in node.targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []
