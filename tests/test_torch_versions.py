"""The page on versions of torch is true: its table, its list of what differs; the version suite and its results."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aoti_debug.app.doctor.host import NEWEST_TORCH
from aoti_debug.base.machine.compiler import OLDEST_TORCH, find_torch
from tests import torch_versions
from tests.paths import ROOT, package_sources
from tests.torch_versions import HEAD, PAGE, Row, release_of, row_of, rows_of, with_row

SUITE = ROOT / "tests" / "version_suite.txt"
OF_TORCH = ("torch", "triton")
LACKING = {"AttributeError", "ImportError", "ModuleNotFoundError"}
WEAK = re.compile(r"__attribute__\(\(weak\)\)[^;(]*torch_|dlsym\(RTLD_DEFAULT, \"aoti_torch_")


def asked(tree: ast.Module) -> Iterator[ast.expr]:
    """The places at which a module asks whether torch or Triton has something, or which version it is."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(a.asname or a.name).split(".")[0] for a in node.names if a.name.split(".")[0] in OF_TORCH}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OF_TORCH:
            names |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        match node:
            case (
                ast.Call(func=ast.Name(id="hasattr"), args=[of, _])
                | ast.Call(func=ast.Name(id="getattr"), args=[of, _, _])
            ):
                if names & _named(of):
                    yield node
            case ast.Compare():
                if "torch.__version__" in ast.unparse(node):
                    yield node
            case ast.Try(body=body, handlers=handlers):
                caught = {name for handler in handlers for name in _named(handler.type)}
                if caught & LACKING and names & {name for part in body for name in _named(part)}:
                    yield from (handler.type for handler in handlers if handler.type is not None)


def _named(node: ast.AST | None) -> set[str]:
    return set() if node is None else {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def listed() -> dict[str, str]:
    """The places of the page, and the files of torch beside them."""
    rows = re.findall(r"^\| `([\w/.]+)` \| .* \| (`(?:torch|torchgen|triton)/.*) \|$", PAGE.read_text(), re.MULTILINE)
    return dict(rows)


def releases() -> list[str]:
    makefile = (ROOT / "Makefile").read_text()
    (found,) = re.findall(r"^VERSIONS \?= (.*)$", makefile, re.MULTILINE)
    return str(found).split()


def test_every_place_that_asks_for_a_feature_is_listed() -> None:
    everything = [*package_sources(), *(ROOT / "repro" / "templates").glob("*.py")]
    modules = [path for path in everything if any(asked(ast.parse(path.read_text())))]
    sources = [path for path in (ROOT / "runtime_shims").rglob("*.cpp") if WEAK.search(path.read_text())]
    found = {place(path) for path in (*modules, *sources)}
    assert len(found) > 10
    assert found - listed().keys() == set()


def place(path: Path) -> str:
    return path.resolve().relative_to(ROOT).as_posix()


def test_a_place_that_asks_is_found() -> None:
    text = (
        'import torch.cuda\nfrom torch._inductor import config\nhasattr(config, "a")\ngetattr(torch.cuda, "b", None)\n'
    )
    text += 'torch.__version__ < "2.13"\nhasattr(text, "c")\ngetattr(torch, "d")\n'
    text += "try:\n    torch.new()\nexcept AttributeError:\n    pass\n"
    text += "try:\n    torch.new()\nexcept ValueError:\n    pass\n"
    text += "try:\n    text.new()\nexcept (ImportError, OSError):\n    pass\n"
    assert sorted(node.lineno for node in asked(ast.parse(text))) == [3, 4, 5, 10]


def test_the_listed_places_exist_and_name_a_file_of_torch() -> None:
    assert len(listed()) > 20
    assert [name for name in listed() if not (ROOT / name).is_file()] == []
    named = [name for names in listed().values() for name in re.findall(r"`([^`]+)`", names)]
    packages = find_torch().directory.parent
    roots = (packages, packages / "torch" / "include")
    assert [name for name in named if not any((root / name).is_file() for root in roots)] == []


def test_only_one_place_asks_for_a_version() -> None:
    asks = [path for path in package_sources() if "torch.__version__ <" in path.read_text()]
    assert [place(path) for path in asks] == ["aoti_debug/runs/run/load_model.py"]


def test_the_versions_are_from_the_oldest_to_the_newest() -> None:
    numbers = [release_of(release) for release in releases()]
    assert numbers == sorted(numbers)
    minors = [release.rpartition(".")[0] for release in releases()]
    assert (minors[0], minors[-1]) == (OLDEST_TORCH, NEWEST_TORCH)
    pinned = re.search(r"^torch==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert pinned[1] in releases()


def test_the_table_has_tested_versions_without_a_failure() -> None:
    found = rows_of(PAGE.read_text())
    assert found.keys() <= {release_of(release) for release in releases()}
    assert [row.strip("| \n").split(" | ")[3] for row in found.values()] == ["0"] * len(found)


def test_the_files_of_the_version_suite_exist() -> None:
    paths = SUITE.read_text().splitlines()
    assert paths == sorted(set(paths))
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_results_of_a_run(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    counts = 'errors="1" failures="2" skipped="3" tests="20" time="99.6"'
    results.write_text(f'<?xml version="1.0"?><testsuites name="pytest tests"><testsuite {counts}/></testsuites>')
    row = row_of(results, "2.14.1+cu130", "3.11.7")
    assert (row.passed, row.failed, row.skipped, row.seconds) == (14, 3, 3, 100)
    assert row.text.startswith("| 2.14.1+cu130 | 3.11.7 | 14 | 3 | 3 | 100 | 20")


def row(torch: str, passed: int) -> Row:
    return Row(torch, "3.11.7", passed, 0, 1, 99, "2026-11-27")


def test_a_row_replaces_that_of_its_version() -> None:
    page = f"before\n\n{HEAD}{row('2.9.1', 1).text}{row('2.14.1+cu130', 2).text}\nafter | x |\n"
    changed = with_row(with_row(page, row("2.14.1+cpu", 3)), row("2.10.0", 4))
    expected = [row("2.9.1", 1), row("2.10.0", 4), row("2.14.1+cpu", 3)]
    assert changed == f"before\n\n{HEAD}{''.join(r.text for r in expected)}\nafter | x |\n"
    with pytest.raises(ValueError, match="no table"):
        with_row("nothing", row("2.9.1", 1))


RESULTS = '<testsuites><testsuite errors="0" failures="$(FAILURES)" skipped="1" tests="9" time="8"/></testsuites>'
PYTHON = """#!/bin/sh
echo 2.15.0+cpu 3.11.7
"""
MAKEFILE = f"""
version:
\tmkdir -p .venv-$(TORCH)/bin
\tcp python .venv-$(TORCH)/bin/python
\techo '{RESULTS}' > $(patsubst --junitxml=%,%,$(lastword $(PYTEST_ARGS)))
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page of a checkout whose tests take no time."""
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    page = tmp_path / "versions.md"
    page.write_text(HEAD)
    monkeypatch.setattr(torch_versions, "ROOT", tmp_path)
    monkeypatch.setattr(torch_versions, "PAGE", page)
    return page


@pytest.mark.parametrize(("failures", "status"), [(0, 0), (2, 1)])
def test_a_version_gets_its_row(page: Path, failures: int, status: int) -> None:
    page.with_name("Makefile").write_text(MAKEFILE.replace("$(FAILURES)", str(failures)))
    assert torch_versions.main(["2.15.0"]) == status
    assert page.read_text().startswith(f"{HEAD}| 2.15.0+cpu | 3.11.7 | {8 - failures} | {failures} | 1 | 8 | 2")
    assert not page.with_name(".venv-2.15.0").exists()


def test_an_environment_that_was_made_is_removed_and_others_stay(
    tmp_path: Path, page: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".venv-2.12.1").mkdir()
    (tmp_path / "Makefile").write_text("version:\n\tmkdir -p .venv-$(TORCH)\n\tfalse\n")
    assert torch_versions.main(["2.12.1", "2.15.0"]) == 1
    assert [path.name for path in tmp_path.glob(".venv-*")] == [".venv-2.12.1"]
    assert page.read_text() == HEAD
    assert "not green: torch 2.12.1, 2.15.0\n" in capfd.readouterr().err
