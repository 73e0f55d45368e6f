"""Inductor's compilation of wrappers, with the templates of `std::regex` compiled once: they take most of the time.

All else is compiled as torch compiles it: its text, its headers, its options, and one object of each wrapper.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from torch._inductor import codecache, cpp_builder

from aoti_debug.builder.compiling.regex_templates import DECLARATIONS, compile_templates
from aoti_debug.builder.compiling.toolchain import Toolchain
from aoti_debug.machine import cache
from aoti_debug.machine.compiler import find_compiler, find_torch

Run = Callable[[str, str], None]  # runs the command line of a compiler, in a folder
WRAPPER_HEADERS = "torch/csrc/inductor/aoti_include"


def share() -> None:
    """From now on, in this process. The precompiled headers are others than those of the users of this machine.

    Without effect where Inductor precompiles no headers of wrappers, and with clang.
    """
    if not hasattr(cpp_builder, "run_compile_cmd") or not hasattr(codecache, "_HEADER_DIR"):
        return
    if find_compiler().is_clang:
        return
    headers = cache.directory() / f"headers-{cache.key(DECLARATIONS)}"
    if str(headers) == codecache._HEADER_DIR:
        return
    codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR = str(headers), str(headers / "locks")
    codecache._precompile_header.cache_clear()
    cpp_builder.run_compile_cmd = sharing(cpp_builder.run_compile_cmd, headers)


def sharing(run: Run, headers: Path) -> Run:
    """Like `run`, except that headers of wrappers declare the templates, and objects of wrappers are linked with them.

    Args:
        headers: the folder of the headers that are precompiled.
    """

    def run_compile_cmd(cmd_line: str, cwd: str) -> None:
        words = shlex.split(cmd_line)
        included = [Path(word) for word in words if word.endswith(".h") and Path(word).parent == headers]
        for header in included:
            _declare(header)
        run(cmd_line, cwd)
        if included and "-c" in words and any(word.endswith(".wrapper.cpp") for word in words):
            _link(Path(words[words.index("-o") + 1]), words, run, cwd)

    return run_compile_cmd


def _declare(header: Path) -> None:
    """Declares the templates at the beginning of a header of wrappers."""
    with FileLock(header.with_suffix(".lock")):
        text = header.read_text()
        if WRAPPER_HEADERS in text and DECLARATIONS not in text:
            header.write_text(DECLARATIONS + text)


def _link(wrapper: Path, words: list[str], run: Run, cwd: str) -> None:
    """Adds the templates to the object of a wrapper."""
    templates = compile_templates(Toolchain(find_compiler(), find_torch()), words)
    assert templates is not None
    part = wrapper.with_suffix(".part.o")
    run(shlex.join([words[0], "-r", "-nostdlib", str(wrapper), str(templates), "-o", str(part)]), cwd)
    part.rename(wrapper)
