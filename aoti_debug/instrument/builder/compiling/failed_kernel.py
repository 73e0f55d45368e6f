"""The generated C++ kernel that the compiler fails on, where it compiles everything else."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine.processes import child_process
from aoti_debug.instrument.builder.compiling.toolchain import CompileError, Toolchain
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.instrument.frontend.protocol.build_failure import (
    HINT,
    BuildFailure,
    BuildFailureError,
    BuildStage,
    Compilation,
    Ending,
    Position,
)
from aoti_debug.instrument.wrapper.launches.kernels import cpp_kernels
from aoti_debug.instrument.wrapper.provenance import kernel_information
from aoti_debug.package import program_graphs
from aoti_debug.package.manifest import Kernel
from aoti_debug.package.program_graphs import MODEL, Node, NodeKind, Reference

SOURCE = "kernel.cpp"
_ROOM = 1 << 24  # bytes on the disk without which a compiler's failure says nothing
_ERROR = re.compile(r"^(?:\S+: )?(.*\berror: .*)$", re.MULTILINE)


def explain(error: CompileError, lowered: LoweredModel, tools: Toolchain, work: Path) -> ToolchainError:
    """The error of a package that does not compile, with the kernel to blame; the error itself if none is.

    A compiler that fails on an empty file, too, or has no room on the disk, is a matter of the machine.

    Args:
        work: an existing directory for objects.
    """
    if Path(error.source).name != SOURCE or shutil.disk_usage(work).free < _ROOM:
        return error
    fresh = Toolchain(tools.compiler, tools.torch)  # the other one's compilers were killed
    words = _without_header(error.words)
    if _failure(fresh, work, "\n", words) is not None:
        return error
    for kernel in cpp_kernels(lowered.sources.kernels):
        alone = _failure(fresh, work, kernel.source, words)
        if alone is not None:
            return BuildFailureError(str(error), _described(alone, kernel, lowered), hint=f"{HINT}; {error.hint}")
    return error


def error_text(code: int, output: str) -> str:
    """The failure of a compiler in one line: "internal compiler error: Segmentation fault", "SIGKILL".

    Args:
        output: its messages.
    """
    said = _ERROR.search(output)
    return child_process.fatal_signal(code) or (said[1] if said else child_process.describe_exit(code))


def _failure(tools: Toolchain, work: Path, text: str, words: Sequence[str]) -> CompileError | None:
    folder = work / "alone"
    folder.mkdir(exist_ok=True)
    source = folder / SOURCE
    source.write_text(text, encoding="utf-8")
    try:
        tools.compile(source, folder / "kernel.o", words)
    except CompileError as error:
        return error
    return None


def _without_header(words: Sequence[str]) -> tuple[str, ...]:
    """The words without the precompiled header, which holds what the kernels include anyway."""
    positions = [number for number, word in enumerate(words) if word == "-include"]
    left_out = {number for position in positions for number in (position, position + 1)}
    return tuple(word for number, word in enumerate(words) if number not in left_out)


def _described(error: CompileError, kernel: Kernel, lowered: LoweredModel) -> BuildFailure:
    reference = None
    if lowered.reference_file is not None:
        reference = program_graphs.from_json(lowered.reference_file.read_bytes())
    nodes = tuple(_nodes(kernel.name, lowered.sources.provenance, reference))
    what = error_text(error.code, error.output)
    return BuildFailure(
        position=Position(BuildStage.CPP, kernel.name, nodes[0].name if nodes else ""),
        ending=Ending.DEATH if error.code < 0 else Ending.EXCEPTION,
        what=what,
        reference=reference,
        operators=tuple(dict.fromkeys(node.target for node in nodes)),
        compilation=Compilation(kernel.source, (error.compiler, *error.words)),
    )


def _nodes(kernel: str, provenance: str, reference: Reference | None) -> Iterator[Node]:
    """The calls of the graph that a kernel computes."""
    graph = None if reference is None else reference.graph("", MODEL)
    if graph is None:
        return
    for launch, record in kernel_information(provenance).items():
        if launch.rpartition(":")[0] == kernel:
            known = (graph.by_name[name] for name in record.post_grad_nodes if name in graph.by_name)
            yield from (node for node in known if node.kind is NodeKind.CALL)
