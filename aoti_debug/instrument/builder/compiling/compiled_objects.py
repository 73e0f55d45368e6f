"""The objects of generated C++, kept between builds: the same text is compiled once with the same options."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from aoti_debug.base.machine import cache
from aoti_debug.instrument.builder.compiling.runtime_directory import RUNTIME
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain

KEPT_OBJECTS = 128  # of 0.1 to 1 MB
_HEADER = "aoti_debug.h"  # the header of instrumented code; it includes only headers of the C++ library
_INCLUDED_FILE = re.compile(r'^\s*#\s*include\s*"([^"\n]*)"', re.MULTILINE)


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
    key = toolchain.key(name, text, (RUNTIME / _HEADER).read_text(), *_by_kind(words))
    shutil.copyfile(cache.entry("objects", key, fill, KEPT_OBJECTS) / output.name, output)
    return output


def _by_kind(words: Sequence[str]) -> list[str]:
    """The options with macros, include directories and instruction sets moved to the end, each in their order.

    Only among those does their order matter: a package, and a build of its program, have them in other places.
    """
    kinds = [[word for word in words if word.startswith(starts)] for starts in (("-D", "-U"), "-I", "-m")]
    others = [word for word in words if not word.startswith(("-D", "-U", "-I", "-m"))]
    return [*others, *(word for kind in kinds for word in kind)]
