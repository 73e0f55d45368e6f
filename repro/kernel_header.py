"""The precompiled header that a package's C++ kernels were compiled with, for their repros."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.compiler import check_compiler, find_torch
from aoti_debug.instrument.builder.compiling.toolchain import (
    Toolchain,
    find_header,
    header_text,
    leading_includes,
    worth_precompiling,
)
from aoti_debug.package.manifest import KernelCompilation
from aoti_debug.repro.templates.header_name import header_name


@dataclass(frozen=True)
class KernelHeader:
    """A header for a repro.

    Attributes:
        name: of its file in the repro.
        text: the includes that the kernel begins with.
        precompiled: where this machine keeps its precompiled form.
    """

    name: str
    text: str
    precompiled: Path

    def link_into(self, folder: Path) -> None:
        """Writes it into a repro's folder, with a link to its precompiled form."""
        build = folder / "build"
        build.mkdir(mode=0o700)
        (build / self.name).write_text(self.text)
        (build / f"{self.name}{self.precompiled.suffix}").symlink_to(self.precompiled)


def find(compilation: KernelCompilation, source: str) -> KernelHeader | None:
    """Finds the header for a kernel; with it, a kernel compiles in a third of the time. None if it is not there.

    Only that of g++, which reads the text instead where the header was made by another g++ or for another processor.
    """
    try:
        toolchain = Toolchain(check_compiler(compilation.command), find_torch())
    except ToolchainError:
        return None
    if toolchain.compiler.is_clang:
        return None
    includes = leading_includes(source)
    beginnings = (includes[:count] for count in range(len(includes), 0, -1))
    for lines in (worth_precompiling(includes), *beginnings):
        text = header_text(lines)
        precompiled = find_header(toolchain, text, compilation)
        if precompiled is not None:
            name = header_name(toolchain.torch.version, compilation.kernel_flags)
            return KernelHeader(name, text, precompiled)
    return None
