"""Imports between modules, and between folders, form no cycle; those in functions and for type checkers included."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.imported_names import imported_names
from tests.paths import PACKAGE, package_sources


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


def folder_of(root: Path, path: Path) -> str:
    """The folder that a module lies in; a module directly in the package stands for itself."""
    relative = path.relative_to(root)
    return str(relative if relative.parent == Path() else relative.parent)


def check_no_folder_cycle(root: Path, paths: Iterable[Path]) -> None:
    """
    Raises:
        graphlib.CycleError: folders import each other; a folder inside of another is one of its own.
    """
    modules = module_names(root, paths)
    folders: dict[str, set[str]] = {}
    for path in modules.values():
        own = folder_of(root, path)
        others = {folder_of(root, modules[name]) for name in imported(path, modules)}
        folders.setdefault(own, set()).update(others - {own})
    graphlib.TopologicalSorter(folders).prepare()


def test_modules_import_each_other_in_one_direction() -> None:
    check_no_cycle(PACKAGE, package_sources())


def test_folders_import_each_other_in_one_direction() -> None:
    check_no_folder_cycle(
        PACKAGE, [path for path in package_sources() if path.parent != PACKAGE or path.stem != "__init__"]
    )


@pytest.mark.parametrize("statement", ["from package.folder import a", "def f():\n    import package.folder.a"])
def test_a_cycle_is_found(tmp_path: Path, statement: str) -> None:
    folder = tmp_path / "package" / "folder"
    folder.mkdir(parents=True)
    for name, text in {"__init__": "", "a": "from package.folder.b import f", "b": statement}.items():
        (folder / f"{name}.py").write_text(text + "\n")
    with pytest.raises(graphlib.CycleError):
        check_no_cycle(tmp_path / "package", folder.glob("*.py"))


@pytest.mark.parametrize("without", ["folder/top.py", "folder/part/high.py"])
def test_a_cycle_of_folders_is_found_without_one_of_modules(tmp_path: Path, without: str) -> None:
    root = tmp_path / "package"
    texts = {
        "folder.top": "from package.folder.part import low",
        "folder.part.low": "",
        "folder.part.high": "from package.folder import base",
        "folder.base": "",
        "folder.__init__": "",
        "folder.part.__init__": "",
    }
    for name, text in texts.items():
        path = root.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    check_no_cycle(root, root.rglob("*.py"))
    with pytest.raises(graphlib.CycleError):
        check_no_folder_cycle(root, root.rglob("*.py"))
    (root / without).write_text("")
    check_no_folder_cycle(root, root.rglob("*.py"))
