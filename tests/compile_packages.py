"""Compiles one small model in many ways, as the user of a compiled package did: `python compile_packages.py FOLDER`."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch._inductor import cpp_builder
from torch._inductor.package import package_aoti

from tests import wrapper_templates

INPUT = torch.linspace(-1, 1, 8).reshape(2, 4)
WEIGHTS_APART = {"aot_inductor.package_constants_in_so": False}
CONFIGS = {
    "plain": {},
    "mapped": {"aot_inductor.force_mmap_weights": True},
    "pickled": {**WEIGHTS_APART, "aot_inductor.package_constants_on_disk_format": "pickle_weights"},
    "blob": {"aot_inductor.package_constants_on_disk_format": "binary_blob"},
    "given": WEIGHTS_APART,
    "cpp_weights": {"aot_inductor.use_consts_asm_build": False},
    "sources": {"aot_inductor.package_cpp_only": True},
}
FIRST, SECOND = 3, 4  # seeds of the weights of the package with two models: equal code, other weights


class Model(torch.nn.Module):
    """Weights that are read, and a buffer that every call changes."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.linear = torch.nn.Linear(4, 8)
        self.register_buffer("total", torch.zeros(2, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.linear(x))
        self.total.add_(y)
        return y + self.total


def program(seed: int = 0) -> torch.export.ExportedProgram:
    return torch.export.export(Model(seed).eval(), (INPUT,))


def compile_all(folder: Path) -> None:
    """Writes `<name>.pt2` for every name in CONFIGS, and two.pt2."""
    torch.export.save(program(), folder / "program.pt2")
    for name, config in CONFIGS.items():
        torch._inductor.aoti_compile_and_package(
            program(), package_path=str(folder / f"{name}.pt2"), inductor_configs=config
        )
    files = {name: _files(seed, folder / name) for name, seed in (("first", FIRST), ("second", SECOND))}
    package_aoti(str(folder / "two.pt2"), files)


def _files(seed: int, folder: Path) -> list[str]:
    """What a model is compiled to; the next one, of equal code, would be written to the same files."""
    folder.mkdir()
    options = {"aot_inductor.package": True}
    compiled = torch._inductor.aot_compile(program(seed).module(), (INPUT,), options=options)
    return [str(shutil.copy(path, folder)) for path in compiled]


def compiling_once(run: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """Like Inductor's function that runs a compiler, except that an object of equal code and flags is copied.

    The packages differ in where their weights lie more often than in their code. Headers of those that map their
    weights are not precompiled: each would be used once.
    """
    objects: dict[tuple[str, ...], bytes] = {}

    def run_compile_cmd(cmd_line: str, cwd: str) -> None:
        words = shlex.split(cmd_line)
        sources = [word for word in words if word.endswith((".wrapper.cpp", ".kernel.cpp"))]
        if "c++-header" in words and any("USE_MMAP" in word for word in words):
            return None
        if len(sources) != 1 or "-c" not in words:
            return run(cmd_line, cwd)
        output = Path(words[words.index("-o") + 1])
        code = Path(sources[0]).read_text().partition("// Compile cmd")[0].rstrip()
        key = (code, *(word for word in words if word not in (*sources, str(output))))
        if key in objects:
            output.write_bytes(objects[key])
        else:
            run(cmd_line, cwd)
            objects[key] = output.read_bytes()
        return None

    return run_compile_cmd


if __name__ == "__main__":
    wrapper_templates.share()
    if hasattr(cpp_builder, "run_compile_cmd"):
        cpp_builder.run_compile_cmd = compiling_once(cpp_builder.run_compile_cmd)
    compile_all(Path(sys.argv[1]))
