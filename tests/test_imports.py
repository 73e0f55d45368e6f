"""Imports between modules form no cycle, those in functions and for type checkers included."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterable
from pathlib import Path

import pytest
from paths import PACKAGE, package_sources


def module_names(root: Path, paths: Iterable[Path]) -> dict[str, Path]:
    """Files by module name; `root` is the folder of the package."""
    names = {}
    for path in paths:
        parts = path.relative_to(root.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imported(path: Path, modules: Iterable[str]) -> set[str]:
    """The modules among `modules` that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            attributes = {f"{node.module}.{alias.name}" for alias in node.names}
            submodules = attributes & set(modules)
            found |= submodules
            if submodules != attributes:
                found.add(str(node.module))
    return found & set(modules)


def check_no_cycle(root: Path, paths: Iterable[Path]) -> None:
    """
    Raises:
        graphlib.CycleError: there is one.
    """
    modules = module_names(root, paths)
    graphlib.TopologicalSorter({name: imported(path, modules) for name, path in modules.items()}).prepare()


def test_modules_import_each_other_in_one_direction() -> None:
    check_no_cycle(PACKAGE, package_sources())


@pytest.mark.parametrize("statement", ["from package.room import a", "def f():\n    import package.room.a"])
def test_a_cycle_is_found(tmp_path: Path, statement: str) -> None:
    room = tmp_path / "package" / "room"
    room.mkdir(parents=True)
    for name, text in {"__init__": "", "a": "from package.room.b import f", "b": statement}.items():
        (room / f"{name}.py").write_text(text + "\n")
    with pytest.raises(graphlib.CycleError):
        check_no_cycle(tmp_path / "package", room.glob("*.py"))
