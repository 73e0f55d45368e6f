"""Packages of exported programs in memory, kept in the cache by their content, and the directory of a compilation.

Such a directory has one folder for each package, and graphs.json.

aoti-debug/compiled/
  latest -> 20261123-120501-4711
  20261123-120501-4711/
    graphs.json             the graphs, in the order in which they were first called
    graph0/program.pt2      the exported program
           package.pt2      the instrumented package
           latest/          its run in this process
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base import abi
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import find_compiler, find_torch, this_processor
from aoti_debug.base.machine.files import atomic_write, json_data, stamped_directories
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.version import own_sources
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.frontend.exported_program import SAVE_ERRORS
from aoti_debug.instrument.frontend.protocol import caller_settings
from aoti_debug.package.pt2 import archive, trust

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

GRAPHS, PROGRAM, PACKAGE = "graphs.json", "program.pt2", "package.pt2"


@dataclass(frozen=True)
class GraphEntry:
    """A graph, as graphs.json lists it.

    Attributes:
        name: of its folder; "" where it runs in eager and torch could not save its program.
        kind: "inference", "forward" or "backward".
        line: the model line of its first operator: "model.py:12 in forward".
        sizes: of its tensors, where it was built for these alone; "" if sizes may change.
        cached: the package was built before, for an equal graph.
        eager: why it runs in eager; "" if it does not.
    """

    name: str
    kind: str
    line: str
    sizes: str = ""
    cached: bool = False
    eager: str = ""


@dataclass(frozen=True)
class _Graphs:
    format: int
    graphs: tuple[GraphEntry, ...]


@dataclasses.dataclass
class CompilationDirectory:
    """The packages of the graphs that one process has compiled.

    Args:
        path: an existing directory.
    """

    path: Path
    _graphs: list[GraphEntry] = dataclasses.field(default_factory=list)
    _folders: int = 0

    @classmethod
    def create(cls, base: Path) -> CompilationDirectory:
        """Makes a new one in `base`, which `latest` leads to from then on.

        Raises:
            UsageError: it cannot be made.
        """
        path = stamped_directories.make(base, "out names another one")
        stamped_directories.link_latest(path)
        return cls(path)

    def new_folder(self) -> Path:
        """Makes the folder of the next package; also where the directory was deleted.

        Raises:
            OSError: it cannot be made.
        """
        while True:
            folder = self.path / f"graph{self._folders}"
            self._folders += 1
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder

    def add(self, entry: GraphEntry) -> None:
        """Adds a graph to the list."""
        self._graphs.append(entry)
        atomic_write.write(self.path / GRAPHS, json_data.to_text(_Graphs(1, tuple(self._graphs))))


def read_graphs(path: Path) -> tuple[GraphEntry, ...]:
    """The graphs of the directory of a compilation."""
    return json_data.parse(_Graphs, (path / GRAPHS).read_bytes()).graphs


_CACHE = "compiled-graph"
_KEPT = 200  # packages without weights: about a megabyte each
_NUMBERED = re.compile(r"(?<=<eval_with_key>)\.\d+")  # names of generated functions, numbered in each process
_OWN_CODE = ("aten", "prims", "aoti_debug")  # operators that do not change between two processes
_OWN_HIGHER_ORDER = ("cond", "while_loop")


def write_package(
    program: ExportedProgram, folder: Path, inductor_configs: Mapping[str, Any], user_code: UserCode
) -> bool:
    """Writes a program and its instrumented package into a folder; True if an equal program was built before.

    Of a program that torch cannot save (attention with a function of its own, a loop that carries a number) the package
    alone is written. The inputs that the package holds are those of the first of equal programs.

    Args:
        user_code: what registers the operators of the program, for the processes that call the package later.

    Raises:
        UsageError: a setting of Inductor is not known.
        ToolchainError: torch or the compiler failed.
    """
    save_program(program, folder)

    def build(work: Path) -> None:
        builder.build_report(
            BuildOptions(program=program, output=work / PACKAGE, inductor_configs=inductor_configs, user_code=user_code)
        )

    if not _is_cacheable(program):
        build(folder)
        return False
    key = program_key(program, inductor_configs)
    is_cached = cache.find(_CACHE, key) is not None
    atomic_write.write(folder / PACKAGE, (cache.entry(_CACHE, key, build, _KEPT) / PACKAGE).read_bytes())
    trust.remember(archive.inspect(folder / PACKAGE))
    return is_cached


def save_program(program: ExportedProgram, folder: Path) -> bool:
    """Writes a program into a folder; False if torch cannot save it."""
    import torch

    content = io.BytesIO()
    try:
        torch.export.save(program, content)
    except SAVE_ERRORS:
        return False
    atomic_write.write(folder / PROGRAM, content.getvalue())
    return True


def _is_cacheable(program: ExportedProgram) -> bool:
    """True if the key holds all of its code: the source of Triton kernels and custom operators is not in the graph."""
    import torch

    for graph in _graphs(program):
        for node in graph.graph.nodes:
            if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace not in _OWN_CODE:
                return False
            if isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() not in _OWN_HIGHER_ORDER:
                return False
    return True


def _graphs(program: ExportedProgram) -> list[torch.fx.GraphModule]:
    """The graph and those of branches and loops."""
    import torch

    return [module for _, module in program.graph_module.named_modules() if isinstance(module, torch.fx.GraphModule)]


def program_key(program: ExportedProgram, inductor_configs: Mapping[str, Any]) -> str:
    """A hash of all that the package of a program depends on."""
    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    nodes = (node for graph in _graphs(program) for node in graph.graph.nodes)
    lines = [_NUMBERED.sub("", str(node.meta.get("stack_trace", ""))) for node in nodes]
    tensors = {**program.state_dict, **program.constants}
    toolchain = Toolchain(find_compiler(), find_torch())
    return toolchain.key(
        own_sources(),
        str(abi.ABI_VERSION),
        *_machine(),
        *(f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("TORCHINDUCTOR_")),
        *(graph.code for graph in _graphs(program)),
        str(program.graph_signature),
        str(program.range_constraints),
        str(program.call_spec),
        *(f"{value.dtype} {value.shape} {value.stride()} {value.device}" for value in _values(inputs)),
        *lines,
        *(f"{name} {_digest(tensors[name])}" for name in sorted(tensors)),
        repr(sorted(inductor_configs.items())),
        caller_settings.key(),
    )


def _machine() -> list[str]:
    """The processor and the GPU, which kernels are compiled for."""
    import torch

    processor = this_processor()
    features = " ".join(sorted(processor.features))
    return [platform.machine(), features, torch.cuda.get_device_name() if torch.cuda.is_available() else ""]


def _values(nodes: Sequence[torch.fx.Node]) -> list[torch.Tensor]:
    import torch

    return [node.meta["val"] for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)]


def _digest(constant: Any) -> str:
    import torch

    if not isinstance(constant, torch.Tensor):
        return repr(constant)
    content = constant.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{constant.dtype} {tuple(constant.shape)} {hashlib.sha256(content).hexdigest()}"
