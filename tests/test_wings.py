"""Which wing may import which, and which folder of a wing: modules import from those before their own."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.imported_names import imported_names
from tests.paths import PACKAGE, ROOT, package_sources

OWN = "*"  # the modules that lie directly in a wing
# In the order of the data flow. A module imports from its own folder, from those before it in its wing, and from the
# wings before its own.
WINGS = {
    "base": ("frozen", "terminal_cells", "wording", "version", "errors", "dtypes", "abi", "machine", "native"),
    "package": (
        *("weights_file", "stream_order", "manifest", "launch_traits", "printing", "triton_config", "argument_values"),
        *("origins", "recording_settings", "program_graphs", "node_text", "pt2", "inputs"),
    ),
    "instrument": ("wrapper", "frontend", "builder"),
    "runs": ("rundir", "kernel_source", "diagnosis", "show", "run", "ranks"),
    "repro": (OWN,),
    "compare": (
        *("protocol", "evaluate", "regions", "measure", OWN, "explain", "diff", "worker", "what_if"),
        *("fx_repro", "bisect", "invariance"),
    ),
    "triage": (
        *("results", "build_failures", "contracts", "nonfinite", "memory_errors", "investigation", "checks", OWN),
        "minify",
    ),
    "views": ("call_text", "redaction", "report", "kernel_code", "bundle", "summaries", "memory", "profile"),
    "app": ("doctor", "torch_compile", "execute", "python", "made_results", "ui", "cli"),
}
MODULES = ("__init__", "__main__")  # all that lie directly in aoti_debug/
# The folders of runtime_shims: a file includes those before its own, its own, and aoti_debug.h
RUNTIME = (
    *("machine", "formats", "device", "cuda", "tensors", "journal", "statistics", "text", "saving", "crash"),
    *("watch", "guards", "run", "launches", "print", "interposer", "threads"),
)
PLACES = [(wing, folder) for wing, folders in WINGS.items() for folder in folders]


def place_of(parts: Sequence[str]) -> tuple[str, str]:
    """The wing and the folder of a module: ("runs", "rundir") of aoti_debug.runs.rundir.launch."""
    wing, first = parts[0], parts[1] if len(parts) > 1 else ""
    has_folder = first in WINGS[wing] or (first not in ("", "templates") and (PACKAGE / wing / first).is_dir())
    return wing, first if has_folder else OWN


def places_imported(path: Path) -> set[tuple[str, str]]:
    """The wings and folders that a file imports modules from, anywhere in it."""
    names = [name.split(".")[1:] for name in imported_names(path) if name.startswith("aoti_debug.")]
    return {place_of(parts) for parts in names if parts[0] in WINGS and (len(parts) > 1 or OWN in WINGS[parts[0]])}


def modules_of_wings() -> dict[Path, tuple[str, str]]:
    """The place of each module; not of the docstrings of wings."""
    parts = {path: path.relative_to(PACKAGE).with_suffix("").parts for path in package_sources()}
    return {path: place_of(of) for path, of in parts.items() if len(of) > 1 and of[1] != "__init__"}


def test_imports_point_downwards() -> None:
    upwards = {
        f"{path.relative_to(PACKAGE)} imports from {'/'.join(place)}"
        for path, own in modules_of_wings().items()
        for place in places_imported(path)
        if PLACES.index(place) > PLACES.index(own)
    }
    assert upwards == set()


def test_every_folder_has_its_place() -> None:
    assert set(modules_of_wings().values()) == set(PLACES)
    assert {path.stem for path in package_sources() if path.parent == PACKAGE} == set(MODULES)


def test_there_are_not_too_many_modules_and_none_is_too_long() -> None:
    templates = (PACKAGE / "repro" / "templates").glob("*.py")
    lines = {path: len(path.read_text().splitlines()) for path in (*package_sources(), *templates)}
    assert [(path, count) for path, count in lines.items() if count > 400] == []
    assert len(lines) <= 555


def test_what_the_package_offers_does_not_need_the_command_line() -> None:
    assert ("app", "cli") not in places_imported(PACKAGE / "__init__.py")


@pytest.mark.parametrize("folder", RUNTIME)
def test_includes_of_the_runtime_point_downwards(folder: str) -> None:
    files = [path for path in (ROOT / "runtime_shims" / folder).iterdir() if path.suffix in {".h", ".cpp", ".cu"}]
    included = {name for path in files for name in re.findall(r'#include "(\w+)/', path.read_text())}
    assert included <= set(RUNTIME[: RUNTIME.index(folder)])


def test_the_runtime_has_no_other_folders() -> None:
    found = {path.name for path in (ROOT / "runtime_shims").iterdir() if path.is_dir() and any(path.glob("*.h"))}
    assert found == set(RUNTIME)


def test_no_two_public_classes_have_one_name() -> None:
    templates = (PACKAGE / "repro" / "templates").glob("*.py")
    names = Counter(
        node.name
        for path in (*package_sources(), *templates)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, times in names.items() if times > 1] == []


def test_only_the_command_line_imports_click() -> None:
    users = {
        path.relative_to(PACKAGE).parts[:2]
        for path in package_sources()
        if any(name.split(".")[0] == "click" for name in imported_names(path))
    }
    assert users == {("app", "cli")}


def test_the_command_line_starts_without_torch() -> None:
    code = "import sys, aoti_debug.app.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
