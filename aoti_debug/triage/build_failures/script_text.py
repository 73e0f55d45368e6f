"""Writes the script that compiles one part of a program with torch alone. A pure text generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aoti_debug.fx_repro.module_text import CLASS, ModuleText
from aoti_debug.fx_repro.script_text import standard_modules, torch_modules
from aoti_debug.repro import literals

SCRIPT = "repro.py"
_MAIN = """

if __name__ == "__main__":
    torch.set_grad_enabled(False)
    program = torch.export.export({name}().eval(){device}, make_inputs())
    settings = {settings}
    with tempfile.TemporaryDirectory() as folder:
        package = str(Path(folder, "model.pt2"))
        torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=settings)
    print("it compiles")
"""


@dataclass(frozen=True)
class Surroundings:
    """The things of the user that a part is compiled with.

    Attributes:
        configs: settings of Inductor.
        folders: of modules of the user's that are not installed.
        imports, libraries: modules and libraries that register operators, lowerings and passes.
    """

    configs: Mapping[str, Any] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


def script_text(
    header: Sequence[str], module: ModuleText, inputs: Mapping[str, str], device: str, around: Surroundings
) -> str:
    """The text of a script that compiles a module, and so fails as the build did.

    Args:
        header: lines that say what it is and where it comes from.
        inputs: an expression of each input, by its name in the module.
        device: of the module, "cpu".
    """
    names = sorted({"sys", "tempfile", *standard_modules(module.imports)})
    lines = ["#!/usr/bin/env python3", f'"""{_docstring(header)}', '"""', "", *(f"import {name}" for name in names)]
    lines += ["from pathlib import Path", "", "import torch"]
    lines += [f"import {name}" for name in torch_modules(module.imports)]
    if around.folders:
        lines += ["", f"sys.path[1:1] = [{', '.join(map(literals.text, around.folders))}]"]
    lines += [f"import {name}  # the user's" for name in around.imports]
    lines += [f"torch.ops.load_library({literals.text(path)})" for path in around.libraries]
    lines += ["", "", module.source.rstrip(), "", "", "def make_inputs():", "    return ("]
    lines += [*(f"        {text},  # {name}" for name, text in inputs.items()), "    )"]
    moved = "" if device == "cpu" else f".to({literals.text(device)})"
    settings = {**around.configs, "aot_inductor.package_cpp_only": True}
    return "\n".join(lines) + "\n" + _MAIN.format(name=CLASS, device=moved, settings=repr(settings))


def _docstring(lines: Sequence[str]) -> str:
    return "\n".join([lines[0], "", *lines[1:]]).replace("\\", "\\\\").replace('"""', "'''")
