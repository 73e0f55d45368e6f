"""The precompiled header that a package's C++ kernels were compiled with, for their repros."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.builder import precompiled_headers
from aoti_debug.builder.toolchain import Toolchain
from aoti_debug.errors import ToolchainError
from aoti_debug.machine.compiler import check_compiler, find_torch
from aoti_debug.manifest import KernelCompilation
from aoti_debug.repro.cpp import PREFIX
from aoti_debug.repro.templates.header_name import header_name

_TEXT = f"#include <{PREFIX}>\n"


def link_into(folder: Path, compilation: KernelCompilation) -> None:
    """Links the header into a repro's folder, where this machine still has it: compiling takes a third of the time.

    Only that of g++, which reads the text instead where the header was made by another g++ or for another processor.
    """
    try:
        toolchain = Toolchain(check_compiler(compilation.command), find_torch())
    except ToolchainError:
        return
    header = None if toolchain.compiler.is_clang else precompiled_headers.find(toolchain, _TEXT, compilation)
    if header is None:
        return
    suffix = toolchain.compiler.header_suffix
    build = folder / "build"
    build.mkdir(mode=0o700)
    link = build / header_name(toolchain.torch.version, compilation.kernel_flags)
    link.write_text(_TEXT)
    link.with_name(link.name + suffix).symlink_to(header.with_name(header.name + suffix))
