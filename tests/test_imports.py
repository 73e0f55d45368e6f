"""Imports between modules form no cycle, those in functions and for type checkers included."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from imported_names import imported_names
from paths import PACKAGE, package_sources


def module_names(root: Path, paths: Iterable[Path]) -> dict[str, Path]:
    """Files by module name; `root` is the folder of the package."""
    names = {}
    for path in paths:
        parts = path.relative_to(root.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imported(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """The modules that a file imports; not a package, where it imports modules of it alone."""
    names = imported_names(path)
    packages = {name for name in names if modules.get(name, path).name == "__init__.py"}
    attributes = {package: {n for n in names if n.rpartition(".")[0] == package} for package in packages}
    only_modules = {package for package, of in attributes.items() if of and of <= modules.keys()}
    return (names & modules.keys()) - only_modules


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
