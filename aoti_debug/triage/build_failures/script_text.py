"""Writes the scripts that fail as a part of a build did, without aoti-debug. Pure text generators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.fx_repro.module_text import CLASS, ModuleText
from aoti_debug.compare.fx_repro.script_text import Surroundings, standard_modules, torch_modules, user_statements
from aoti_debug.repro import literals

SCRIPT = "repro.py"
_WITH_WEIGHTS = f"{CLASS}WithWeights"
_MAIN = """

if __name__ == "__main__":
    torch.set_grad_enabled(False)
    program = {program}
    settings = {settings}
    with tempfile.TemporaryDirectory() as folder:
        package = str(Path(folder, "model.pt2"))
        torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=settings)
    print("it compiles")
"""
_COMPILER = '''#!/usr/bin/env python3
"""{header}
"""

import os
import subprocess
import sys
from pathlib import Path

COMMAND = [
{words}]
SOURCE = Path(__file__).with_name({source})

if __name__ == "__main__":
    code = subprocess.run([*COMMAND, "-c", str(SOURCE), "-o", os.devnull], check=False).returncode
    if code < 0:
        os.kill(os.getpid(), -code)  # the signal that ended the compiler
    if code == 0:
        print("it compiles")
    sys.exit(code)
'''


@dataclass(frozen=True)
class ModuleTensors:
    """The tensors that a module takes, as expressions by their names in the module.

    Attributes:
        inputs: those of the program.
        weights: those whose elements torch knows when it compiles.
        device: of the module, "cpu".
    """

    inputs: Mapping[str, str]
    weights: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"


def script_text(header: Sequence[str], module: ModuleText, given: ModuleTensors, around: Surroundings) -> str:
    """The text of a script that compiles a module, and so fails as the build did.

    Args:
        header: lines that say what it is and where it comes from.
    """
    lines = _beginning(header, ["sys", "tempfile", *standard_modules(module.imports)], module.imports, around)
    lines += ["", "", module.source.rstrip()]
    if given.weights:
        lines += ["", "", *_with_weights(module, given)]
    lines += ["", "", "def make_inputs():", "    return ("]
    lines += [*(f"        {text},  # {name}" for name, text in given.inputs.items()), "    )", ""]
    name = _WITH_WEIGHTS if given.weights else CLASS
    moved = "" if given.device == "cpu" else f".to({literals.text(given.device)})"
    return "\n".join(lines) + _main(f"torch.export.export({name}().eval(){moved}, make_inputs())", around)


def loading_text(header: Sequence[str], program: str, around: Surroundings) -> str:
    """The text of a script that compiles a saved program, whose graph has no form in a script.

    Args:
        program: the path of its file.
    """
    lines = [*_beginning(header, ["sys", "tempfile"], (), around), ""]
    return "\n".join(lines) + _main(f"torch.export.load({literals.text(program)})", around)


def compiler_text(header: Sequence[str], command: Sequence[str], source: str) -> str:
    """The text of a script that runs a compiler on a source file beside it, and ends as the compiler does.

    Args:
        source: the name of that file.
    """
    words = "".join(f"    {literals.text(word)},\n" for word in command)
    return _COMPILER.format(header=_docstring(header), words=words, source=literals.text(source))


def _with_weights(module: ModuleText, given: ModuleTensors) -> list[str]:
    """The lines of a module that holds the weights."""
    arguments = ", ".join(f"self.{name}" if name in given.weights else name for name in module.inputs)
    return [
        f"class {_WITH_WEIGHTS}({CLASS}):",
        "    def __init__(self):",
        "        super().__init__()",
        *(f"        self.register_buffer({literals.text(name)}, {text})" for name, text in given.weights.items()),
        "",
        f"    def forward({', '.join(['self', *given.inputs])}):",
        f"        return super().forward({arguments})",
    ]


def _beginning(
    header: Sequence[str], modules: Sequence[str], imports: Sequence[str], around: Surroundings
) -> list[str]:
    """The lines of a script up to its last import."""
    lines = ["#!/usr/bin/env python3", f'"""{_docstring(header)}', '"""', ""]
    lines += [*(f"import {name}" for name in sorted(set(modules))), "from pathlib import Path", "", "import torch"]
    lines += [f"import {name}" for name in torch_modules(imports)]
    own = user_statements(around)
    return [*lines, *(["", *own] if own else [])]


def _main(program: str, around: Surroundings) -> str:
    settings = {**around.configs, "aot_inductor.package_cpp_only": True}
    return _MAIN.format(program=program, settings=repr(settings))


def _docstring(lines: Sequence[str]) -> str:
    return "\n".join([lines[0], "", *lines[1:]]).replace("\\", "\\\\").replace('"""', "'''")
