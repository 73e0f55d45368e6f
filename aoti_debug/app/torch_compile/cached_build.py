"""Packages of exported programs in memory, kept in the cache by their content."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.app.torch_compile.directory import PACKAGE, PROGRAM
from aoti_debug.base import abi
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.base.machine.processor import this_processor
from aoti_debug.base.version import __version__
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.frontend.exported_program import SAVE_ERRORS
from aoti_debug.package.pt2 import archive, trust

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

_CACHE = "compiled-graph"
_KEPT = 200  # packages without weights: about a megabyte each
_NUMBERED = re.compile(r"(?<=<eval_with_key>)\.\d+")  # names of generated functions, numbered in each process
_OWN_CODE = ("aten", "prims", "aoti_debug")  # operators that do not change between two processes
_OWN_HIGHER_ORDER = ("cond", "while_loop")


def write_package(program: ExportedProgram, folder: Path, inductor_configs: Mapping[str, Any]) -> bool:
    """Writes a program and its instrumented package into a folder; True if an equal program was built before.

    Of a program that torch cannot save (attention with a function of its own, a loop that carries a number) the package
    alone is written. The inputs that the package holds are those of the first of equal programs.

    Raises:
        UsageError: a setting of Inductor is not known.
        ToolchainError: torch or the compiler failed.
    """
    import torch

    content = io.BytesIO()
    with contextlib.suppress(*SAVE_ERRORS):
        torch.export.save(program, content)
        atomic_write.write(folder / PROGRAM, content.getvalue())

    def build(work: Path) -> None:
        builder.build_report(BuildOptions(program=program, output=work / PACKAGE, inductor_configs=inductor_configs))

    if not _is_cacheable(program):
        build(folder)
        return False
    key = _key(program, inductor_configs)
    is_cached = cache.find(_CACHE, key) is not None
    atomic_write.write(folder / PACKAGE, (cache.entry(_CACHE, key, build, _KEPT) / PACKAGE).read_bytes())
    trust.remember(archive.inspect(folder / PACKAGE))
    return is_cached


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


def _key(program: ExportedProgram, inductor_configs: Mapping[str, Any]) -> str:

    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    nodes = (node for graph in _graphs(program) for node in graph.graph.nodes)
    lines = [_NUMBERED.sub("", str(node.meta.get("stack_trace", ""))) for node in nodes]
    tensors = {**program.state_dict, **program.constants}
    toolchain = Toolchain(find_compiler(), find_torch())
    return toolchain.key(
        __version__,
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
