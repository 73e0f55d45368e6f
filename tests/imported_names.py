"""What a source file imports."""

from __future__ import annotations

import ast
from pathlib import Path


def imported_names(path: Path) -> set[str]:
    """Dotted names of all that a file imports, anywhere in it: `a.b` and `a.b.c` of `from a.b import c`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found
