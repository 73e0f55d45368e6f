"""Precompiled headers, kept between builds; the repro of a kernel is compiled with that of its package."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from aoti_debug.base.machine import cache
from aoti_debug.instrument.builder.compiling.runtime_directory import RUNTIME
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.package.manifest import KernelCompilation

_KIND, _NAME = "headers", "leading.h"
_OF_KERNELS = "#include <torch/csrc/inductor/cpp_prefix.h>"
_LEADING = re.compile(r"(?:\s*(?:#include\s*<[^>\n]*>[^\n]*|//[^\n]*))*")
_INCLUDE = re.compile(r"^\s*(#include\s*<[^>\n]*>)", re.MULTILINE)


def leading_includes(source: str) -> list[str]:
    """The `#include <…>` lines that a source begins with; comments may lie between them."""
    leading = _LEADING.match(source)
    return _INCLUDE.findall(leading.group()) if leading else []


def worth_precompiling(includes: Sequence[str]) -> Sequence[str]:
    """Those of these lines that take long: what kernels include beside the header of all kernels is quickly parsed.

    Kernels that include more, such as those with matrix products or those that are profiled, share the precompiled
    header of the others.
    """
    return [_OF_KERNELS] if _OF_KERNELS in includes else includes


def text_of(includes: Sequence[str]) -> str:
    """The text of a header of these lines."""
    return "".join(f"{line}\n" for line in includes)


def precompile(toolchain: Toolchain, text: str, words: Sequence[str]) -> Path:
    """Returns the header with this text; its precompiled form lies beside it.

    Args:
        words: the flags that it is compiled with, `-I` among them.

    Raises:
        ToolchainError: it does not compile.
    """

    def fill(directory: Path) -> None:
        path = directory / _NAME
        path.write_text(text)
        output = directory / f"{_NAME}{toolchain.compiler.header_suffix}"
        command = [toolchain.compiler.path, "-x", "c++-header", str(path), *words, "-o", str(output)]
        toolchain.run(command, "the headers of torch cannot be precompiled")

    return cache.entry(_KIND, _key(toolchain, text, words), fill) / _NAME


def find(toolchain: Toolchain, text: str, compilation: KernelCompilation) -> Path | None:
    """The precompiled form of the header with this text, for the kernels of a package; None if the cache has none."""
    directories = [f"-I{path}" for path in (*compilation.include_dirs, RUNTIME)]
    found = cache.find(_KIND, _key(toolchain, text, [*compilation.kernel_flags, *directories]))
    return None if found is None else found / f"{_NAME}{toolchain.compiler.header_suffix}"


def _key(toolchain: Toolchain, text: str, words: Sequence[str]) -> str:
    """The order of macros and code generation flags does not matter to a header."""
    ordered = sorted(words, key=lambda word: "" if word.startswith("-I") else word)
    return toolchain.key(text, *ordered)
