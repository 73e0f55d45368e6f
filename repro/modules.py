"""Which of the modules that travel along a script needs: those it imports, and those that these import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
PACKAGE = "replay"  # the name that they are imported by


def modules_of(script: str) -> dict[str, str]:
    """File name -> text of the modules, `__init__.py` among them.

    Args:
        script: the text of repro.py.
    """
    waiting = ["__init__", *_imported(script, from_package=True)]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imported_by(name)
    return {f"{name}.py": _text(name) for name in sorted(found)}


@cache
def _text(name: str) -> str:
    return (TEMPLATES / f"{name}.py").read_text(encoding="utf-8")


@cache
def _imported_by(name: str) -> tuple[str, ...]:
    return tuple(_imported(_text(name), from_package=False))


def _imported(text: str, *, from_package: bool) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom):
            continue
        if not from_package and node.level == 1:
            yield from [node.module] if node.module else [alias.name for alias in node.names]
        elif from_package and node.module and node.module.startswith(f"{PACKAGE}."):
            yield node.module.removeprefix(f"{PACKAGE}.")
