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
# Imports as the modules write them: to parse 40 modules takes 35 ms, a fifth of a whole `repro`.
_FROM_MODULE = re.compile(r"^ *from \.(\w+) import ", re.MULTILINE)
_MODULES = re.compile(r"^ *from \. import ([\w, ]+)$", re.MULTILINE)


def modules_of(script: str) -> dict[str, str]:
    """Returns file name -> text of the modules, `__init__.py` among them.

    Args:
        script: the text of repro.py.
    """
    waiting = ["__init__.py", *_imported_by_script(script)]
    names: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += needed_by(name)
    return {name: _text(name) for name in sorted(names)}


@cache
def needed_by(name: str) -> tuple[str, ...]:
    """The modules that a module imports, and the files that it reads."""
    if not name.endswith(".py"):
        return ()
    text = _text(name)
    modules = [*_FROM_MODULE.findall(text), *(name for names in _MODULES.findall(text) for name in names.split(", "))]
    return (*(f"{module}.py" for module in modules), *_HEADER.findall(text))


@cache
def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _imported_by_script(text: str) -> Iterator[str]:
    """Its strings, the source of a kernel among them, may hold lines that look like imports."""
    for node in _statements(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{PACKAGE}."):
            yield f"{node.module.removeprefix(f'{PACKAGE}.')}.py"


def _statements(block: ast.AST) -> Iterator[ast.AST]:
    """Yields the statements in a module or statement, those in others included; expressions hold no imports."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(block, field, ()):
            yield statement
            yield from _statements(statement)
