"""Docstrings: one summary line that says what the thing is or does."""

from __future__ import annotations

import ast

from tests.paths import PACKAGE, package_sources

QUESTION_WORDS = {"What", "Which", "Whether", "How", "Who", "Why", "Where", "When", "As", "Is", "Are"}


def public_definitions(tree: ast.Module) -> list[tuple[str, ast.AST]]:
    """The module, and its classes and functions without a leading underscore; methods of public classes, too."""
    definitions: list[tuple[str, ast.AST]] = [("module", tree)]
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            definitions.append((node.name, node))
            if isinstance(node, ast.ClassDef):
                definitions += [
                    (f"{node.name}.{method.name}", method)
                    for method in node.body
                    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_")
                ]
    return definitions


def faults(tree: ast.Module) -> list[str]:
    found = []
    for name, node in public_definitions(tree):
        text = ast.get_docstring(node)  # type: ignore[arg-type]
        if text is None:
            found.append(f"{name}: has no docstring")
            continue
        summary, _, rest = text.partition("\n")
        if summary.split()[0].strip(",.:;") in QUESTION_WORDS:
            found.append(f"{name}: begins with {summary.split()[0]}")
        if not summary.endswith((".", ":")) or summary in ("Attributes:", "Args:", "Raises:"):
            found.append(f"{name}: the first line is no sentence: {summary}")
        if rest and not rest.startswith("\n"):
            found.append(f"{name}: no blank line after the summary")
    return found


def test_docstrings() -> None:
    trees = {path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in package_sources()}
    found = [f"{path}: {fault}" for path, tree in trees.items() for fault in faults(tree)]
    assert found == []


def test_faults_are_found() -> None:
    text = '"""Module."""\ndef a(): pass\ndef b():\n    """Whether x."""\ndef c():\n    """Attributes:\n    x"""\n'
    assert [line.partition(":")[0] for line in faults(ast.parse(text))] == ["a", "b", "c", "c"]
