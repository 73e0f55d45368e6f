"""Which module may import which: a module imports only modules of its own layer or of layers below."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "aoti_debug"

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "abi", "manifest", "statistics", "values", "records"}),  # words
    frozenset(  # what lies on disk, and how it is read
        {
            *("archive_check", "artifact", "cache", "crumbs", "inputs", "journal", "launches", "lowering", "rundir"),
            "runinfo",
            *("backtrace", "dataflow", "elf", "findings", "flight", "flight_format", "frames", "locations", "promises"),
            *("raised", "rescued", "sameness", "tensor_files", "triagedir", "unpack", "_operators"),
            *("input_contract", "signature", "sizes", "sources", "tensors", "wrapper"),
            *("block_choices", "grid_blocks", "heuristic", "launch_configs"),
        }
    ),
    frozenset(  # steps: from sources to a package, from a package to a process
        {
            *("_lower_child", "_run_child", "child", "commands", "compiler", "hashed_kernels", "inductor_cache"),
            *(
                "_adopt_child",
                "_answering",
                "_inputs_child",
                "adopt",
                "against",
                "interposer",
                "loading",
                "joined",
                "kernel_text",
                "other_torch",
                "compiled_for",
                "random_inputs",
                "recorded_commands",
            ),
            *("_layouts", "_triton_configs", "instrument", "kernel_details", "lower", "package", "stall", "toolchain"),
        }
    ),
    frozenset(
        {
            *("build_options", "builder", "diagnose", "doctor", "leftovers", "lent", "rescue", "run_options"),
            *("runner", "subjects"),
        }
    ),
    frozenset({"repro", "show"}),
    frozenset({"triage"}),
    frozenset({"report"}),
    frozenset({"bundle"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
FACADE = "__init__"  # aoti_debug/__init__.py offers names of every layer but cli


def layer_of(module: str) -> int:
    return next(i for i, names in enumerate(LAYERS) if module in names)


def first_parties(path: Path) -> set[str]:
    """The modules of aoti_debug (first name below the package) that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "aoti_debug"
                else [str(node.module)]
            )
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("aoti_debug.")} - {"__version__"}
    return found


def sources() -> list[Path]:
    linked = (ROOT / "repro").rglob("*.py")  # rglob follows no link
    return sorted(p for p in {*ROOT.rglob("*.py"), *linked} if "templates" not in p.parts)


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    module = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if module == FACADE:
        assert "cli" not in first_parties(path)
        return
    above = {name for name in first_parties(path) if layer_of(name) > layer_of(module)}
    assert above == set()


def test_every_module_has_a_layer() -> None:
    modules = {p.relative_to(ROOT).parts[0].removesuffix(".py") for p in sources()} - {FACADE, "runtime_shims"}
    assert modules == set().union(*LAYERS)


def test_only_the_command_line_imports_click_and_rich_console() -> None:
    users = {
        path.relative_to(ROOT).parts[0].removesuffix(".py")
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "click" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "click")
    }
    assert users == {"cli"}


def test_the_command_line_starts_without_torch() -> None:
    code = "import sys, aoti_debug.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
