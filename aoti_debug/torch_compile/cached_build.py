"""Packages of exported programs in memory, kept in the cache by their content."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug import __version__, abi
from aoti_debug.builder import build as builder
from aoti_debug.builder.options import BuildOptions
from aoti_debug.machine import cache, files
from aoti_debug.pt2 import archive, trust
from aoti_debug.torch_compile.directory import PACKAGE, PROGRAM

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

_CACHE = "compiled-graph"


def write_package(program: ExportedProgram, folder: Path, inductor_configs: Mapping[str, Any]) -> bool:
    """Writes a program and its instrumented package into a folder; True if an equal program was built before.

    The inputs that the package holds are those of the first of equal programs.

    Raises:
        UsageError: a setting of Inductor is not known.
        ToolchainError: torch or the compiler failed.
    """
    import torch

    content = io.BytesIO()
    torch.export.save(program, content)
    files.write(folder / PROGRAM, content.getvalue())

    def build(work: Path) -> None:
        builder.build_report(BuildOptions(program=program, output=work / PACKAGE, inductor_configs=inductor_configs))

    key = _key(program, inductor_configs)
    is_cached = cache.find(_CACHE, key) is not None
    files.write(folder / PACKAGE, (cache.entry(_CACHE, key, build) / PACKAGE).read_bytes())
    trust.remember(archive.inspect(folder / PACKAGE))
    return is_cached


def _key(program: ExportedProgram, inductor_configs: Mapping[str, Any]) -> str:
    import torch

    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    lines = [str(node.meta.get("stack_trace", "")) for node in program.graph.nodes]
    tensors = {**program.state_dict, **program.constants}
    return cache.key(
        __version__,
        str(abi.ABI_VERSION),
        torch.__version__,
        program.graph_module.code,
        str(program.graph_signature),
        str(program.range_constraints),
        str(program.call_spec),
        *(f"{value.dtype} {value.shape} {value.stride()} {value.device}" for value in _values(inputs)),
        *lines,
        *(f"{name} {_digest(tensors[name])}" for name in sorted(tensors)),
        repr(sorted(inductor_configs.items())),
    )


def _values(nodes: Sequence[torch.fx.Node]) -> list[torch.Tensor]:
    import torch

    return [node.meta["val"] for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)]


def _digest(constant: Any) -> str:
    import torch

    if not isinstance(constant, torch.Tensor):
        return repr(constant)
    content = constant.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{constant.dtype} {tuple(constant.shape)} {hashlib.sha256(content).hexdigest()}"
