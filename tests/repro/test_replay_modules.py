"""The replay modules of a script: those that it imports, and those that they import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from aoti_debug.repro.repro_files import TEMPLATES, modules_of, needed_by


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.py")), ids=lambda path: path.name)
def test_the_imports_of_every_module_are_found(path: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    relative = [node for node in imports if node.level]
    names = [name for node in relative for name in ([node.module] if node.module else [a.name for a in node.names])]
    needed = [name.removesuffix(".py") for name in needed_by(path.name) if name.endswith(".py")]
    assert sorted(needed) == sorted(map(str, names))
    assert all((TEMPLATES / name).is_file() for name in needed_by(path.name))


def test_what_a_string_of_the_script_imports_is_not_needed() -> None:
    assert modules_of('SOURCE = r"""\nfrom replay.gone import y\n"""\n') == modules_of("")


def test_an_import_in_a_function_counts() -> None:
    script = "def main():\n    from replay.triton_kernel import x\n"
    assert "triton_kernel.py" in set(modules_of(script)) - set(modules_of(""))


def test_without_an_import_there_is_what_the_package_itself_needs() -> None:
    assert {"__init__.py", "process.py"} <= set(modules_of(""))


def test_a_file_that_a_module_reads_is_needed() -> None:
    readers = [path.name for path in TEMPLATES.glob("*.py") if any(n.endswith(".h") for n in needed_by(path.name))]
    assert readers
    assert all(needed_by(name) == () for reader in readers for name in needed_by(reader) if name.endswith(".h"))
