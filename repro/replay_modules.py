"""The replay modules that a script needs: those it imports, and those that these import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
PACKAGE = "replay"  # the name that they are imported by
_HEADER = re.compile(r'with_name\("(\w+\.h)"\)')  # a file that a module reads


def modules_of(script: str) -> dict[str, str]:
    """Returns file name -> text of the modules, `__init__.py` among them.

    Args:
        script: the text of repro.py.
    """
    waiting = ["__init__.py", *_imported(script, from_package=True)]
    names: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += _needed_by(name)
    return {name: _text(name) for name in sorted(names)}


@cache
def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _needed_by(name: str) -> tuple[str, ...]:
    if not name.endswith(".py"):
        return ()
    text = _text(name)
    return (*_imported(text, from_package=False), *_HEADER.findall(text))


def _imported(text: str, *, from_package: bool) -> Iterator[str]:
    for node in _statements(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom):
            continue
        if not from_package and node.level == 1:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from (f"{name}.py" for name in names)
        elif from_package and node.module and node.module.startswith(f"{PACKAGE}."):
            yield f"{node.module.removeprefix(f'{PACKAGE}.')}.py"


def _statements(block: ast.AST) -> Iterator[ast.AST]:
    """Yields the statements in a module or statement, those in others included; expressions hold no imports."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(block, field, ()):
            yield statement
            yield from _statements(statement)
