"""Extracts the functions of Inductor's triton_helpers module that kernel sources call."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from aoti_debug.base.frozen import dataclass

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
    """Returns the top-level definitions of a module's text by name, in order."""
    lines = text.splitlines(keepends=True)
    by_name = {}
    for node in ast.parse(text).body:
        for name in _defined(node):
            decorators = node.decorator_list if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
            first = min([node.lineno, *(d.lineno for d in decorators)]) - 1
            by_name[name] = Definition(
                name, "".join(lines[first : node.end_lineno]).strip("\n") + "\n", free_names(node)
            )
    return by_name


def closure(available: Mapping[str, Definition], names: Iterable[str]) -> tuple[Definition, ...]:
    """Returns the named definitions and all that they use, in the order of the text; unknown names are left out."""
    reached, open_ = set(), [name for name in names if name in available]
    while open_:
        name = open_.pop()
        if name not in reached:
            reached.add(name)
            open_ += [used for used in available[name].uses if used in available]
    return tuple(definition for name, definition in available.items() if name in reached)


def helpers_of(sources: Iterable[str], text: str) -> str:
    """Returns the part of the text of Inductor's helpers that kernel sources use."""
    names = {name for source in sources for name in attributes_of(ast.parse(source), MODULE)}
    return "\n\n".join(definition.text for definition in closure(definitions(text), names))


def attributes_of(tree: ast.AST, module: str) -> dict[str, list[ast.Attribute]]:
    """Returns every `module.name` in a tree, by name."""
    attributes: dict[str, list[ast.Attribute]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module:
            attributes.setdefault(node.attr, []).append(node)
    return attributes


def free_names(node: ast.AST) -> frozenset[str]:
    """Returns the names that a definition reads and does not bind itself."""
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    return frozenset(n.id for n in names if isinstance(n.ctx, ast.Load)) - bound_names(node)


def bound_names(node: ast.AST) -> frozenset[str]:
    """Returns the parameters and variables of a function; none for other nodes."""
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
