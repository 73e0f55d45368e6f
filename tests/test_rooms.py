"""Which room may import which: a module imports only from its own room and from rooms that come before it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from imported_names import imported_names
from paths import PACKAGE, ROOT, package_sources

ROOMS = (  # along the way of the data; a room imports those before it and itself
    *(
        "version",
        "lazy",
        "errors",
        "dtypes",
        "abi",
        "wording",
        "machine",
        "manifest",
        "recording",
        "reference",
        "printing",
    ),
    *("native", "pt2", "triton_config", "inputs", "wrapper"),
    *("frontend", "builder"),
    *("rundir", "diagnosis", "run"),
    *("show", "repro", "compare", "fx_repro", "diff", "ranks", "replay", "bisect", "call_text", "triage"),
    *("kernel_code", "minify"),
    *("report", "summaries", "memory", "profile", "bundle", "torch_compile"),
    *("doctor", "cli", "__main__"),
)
# All that lies directly in aoti_debug/
MODULES = frozenset({"version", "errors", "dtypes", "abi", "wording", "manifest", "__main__"})
# Within compare: a folder imports those before it and itself; the modules that lie directly in it come before locate
COMPARE = ("protocol", "regions", "evaluate", "measure", "explain", "worker", "locate")
# The folders of runtime_shims: a file includes those before its own, its own, and aoti_debug.h
RUNTIME = (
    *("machine", "formats", "device", "cuda", "tensors", "journal", "statistics", "text", "saving", "crash"),
    *("watch", "guards", "run", "launches", "print", "interposer"),
)
FACADE = "__init__"  # aoti_debug/__init__.py offers names of every room but cli


def first_parties(path: Path) -> set[str]:
    """The modules of aoti_debug (first name below the package) that a file imports, anywhere in it."""
    return {name.split(".")[1] for name in imported_names(path) if name.startswith("aoti_debug.")}


@pytest.mark.parametrize("path", package_sources(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    module = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if module == FACADE:
        assert "cli" not in first_parties(path)
        return
    assert {name for name in first_parties(path) if ROOMS.index(name) > ROOMS.index(module)} == set()


@pytest.mark.parametrize("folder", COMPARE)
def test_imports_within_compare_point_downwards(folder: str) -> None:
    own = COMPARE.index(folder)
    later = {f"aoti_debug.compare.{name}" for name in COMPARE[own + 1 :]}
    if folder != COMPARE[-1]:
        later |= {f"aoti_debug.compare.{path.stem}" for path in (PACKAGE / "compare").glob("*.py")}
    imported = {
        ".".join(str(node.module).split(".")[:3])
        for path in (PACKAGE / "compare" / folder).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    assert imported & later == set()


def test_compare_has_no_other_folders() -> None:
    assert {path.parent.name for path in (PACKAGE / "compare").glob("*/*.py")} == set(COMPARE)


@pytest.mark.parametrize("folder", RUNTIME)
def test_includes_of_the_runtime_point_downwards(folder: str) -> None:
    files = [path for path in (ROOT / "runtime_shims" / folder).iterdir() if path.suffix in {".h", ".cpp", ".cu"}]
    included = {name for path in files for name in re.findall(r'#include "(\w+)/', path.read_text())}
    assert included <= set(RUNTIME[: RUNTIME.index(folder)])


def test_the_runtime_has_no_other_folders() -> None:
    found = {path.name for path in (ROOT / "runtime_shims").iterdir() if path.is_dir() and any(path.glob("*.h"))}
    assert found == set(RUNTIME)


def test_every_room_has_its_place_and_no_module_lies_outside_of_one() -> None:
    folders = {path.parent.relative_to(PACKAGE).parts[0] for path in package_sources() if path.parent != PACKAGE}
    assert {path.stem for path in PACKAGE.glob("*.py")} == MODULES | {FACADE}
    assert folders | MODULES == set(ROOMS)


def test_only_the_command_line_imports_click_and_rich_console() -> None:
    users = {
        path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for path in package_sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "click" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "click")
    }
    assert users == {"cli"}


def test_the_command_line_starts_without_torch() -> None:
    code = "import sys, aoti_debug.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
