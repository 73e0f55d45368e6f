"""Objects and precompiled headers of generated C++, kept between builds: a text is compiled once with the same options.

The repro of a kernel is compiled with the precompiled header of its package.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from aoti_debug.base.machine import cache
from aoti_debug.instrument.builder.compiling.toolchain import RUNTIME, Toolchain
from aoti_debug.package.manifest import KernelCompilation

KEPT_OBJECTS = 1024  # of 0.1 to 1 MB
_HEADER = "aoti_debug.h"  # the header of instrumented code; it includes only headers of the C++ library
_INCLUDED_FILE = re.compile(r'^\s*#\s*include\s*"([^"\n]*)"', re.MULTILINE)
_KIND, _NAME = "headers", "leading.h"
_OF_KERNELS = "#include <torch/csrc/inductor/cpp_prefix.h>"
# Before the includes, macros say how kernels were compiled (triton.autotune_at_compile_time=False).
_RESULT_NAMES = r"CUBIN_PATH|MANGLED_NAME|NUM_WARPS|SHARED_MEM|\w+BLOCKS|RSPLIT\w*|CONFIG_INDEX|\w+_SCRATCH|\w+_META"
_RESULT = rf"#define \w+_(?:{_RESULT_NAMES}) [^\n]*"
_LEADING = re.compile(rf"(?:\s*(?:#include\s*<[^>\n]*>[^\n]*|//[^\n]*|#pragma once\b|{_RESULT}))*")
_INCLUDE = re.compile(r"^\s*(#include\s*<[^>\n]*>)", re.MULTILINE)


def compile_text(toolchain: Toolchain, work: Path, text: str, name: str, words: Sequence[str]) -> Path:
    """Compiles a text as `name`.cpp, unless the cache has its object, and returns the object, in a folder.

    Headers of torch and of the compiler stay as they are, like those that are precompiled. A text that includes other
    files is always compiled.

    Raises:
        ToolchainError: it does not compile.
    """
    output = work / f"{name}.o"

    def fill(directory: Path) -> None:
        source = directory / f"{name}.cpp"
        source.write_text(text)
        toolchain.compile(source, directory / output.name, words)
        source.unlink()

    if not set(_INCLUDED_FILE.findall(text)) <= {_HEADER}:
        fill(work)
        return output
    key = toolchain.key(name, text, (RUNTIME / _HEADER).read_text(), *_by_kind(_without_own_folder(words)))
    shutil.copyfile(cache.entry("objects", key, fill, KEPT_OBJECTS) / output.name, output)
    return output


def _without_own_folder(words: Sequence[str]) -> list[str]:
    """The options without the folder of our own header, so that installations of this tool share what they compile."""
    return [word for word in words if word != f"-I{RUNTIME}"]


def _by_kind(words: Sequence[str]) -> list[str]:
    """The options with macros, include directories and instruction sets moved to the end, each in their order.

    Only among those does their order matter: a package, and a build of its program, have them in other places.
    """
    kinds = [[word for word in words if word.startswith(starts)] for starts in (("-D", "-U"), "-I", "-m")]
    others = [word for word in words if not word.startswith(("-D", "-U", "-I", "-m"))]
    return [*others, *(word for kind in kinds for word in kind)]


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


def header_text(includes: Sequence[str]) -> str:
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


def include_precompiled(
    toolchain: Toolchain, text: str, words: Sequence[str], before: str = "", after: str = ""
) -> list[str]:
    """The option that includes the headers at the beginning of `text`, precompiled; none if it begins with none.

    Args:
        before, after: declarations before and after it.

    Raises:
        ToolchainError: the headers do not compile.
    """
    includes = worth_precompiling(leading_includes(text))
    if not includes:
        return []
    header = before + header_text(includes) + after
    return ["-include", str(precompile(toolchain, header, words))]


def find_header(toolchain: Toolchain, text: str, compilation: KernelCompilation) -> Path | None:
    """The precompiled form of the header with this text, for the kernels of a package; None if the cache has none."""
    directories = [f"-I{path}" for path in compilation.include_dirs]
    found = cache.find(_KIND, _key(toolchain, text, [*compilation.kernel_flags, *directories]))
    return None if found is None else found / f"{_NAME}{toolchain.compiler.header_suffix}"


def _key(toolchain: Toolchain, text: str, words: Sequence[str]) -> str:
    """The order of macros and code generation flags does not matter to a header, which includes none of ours."""
    ordered = sorted(_without_own_folder(words), key=lambda word: "" if word.startswith("-I") else word)
    return toolchain.key(text, *ordered)
