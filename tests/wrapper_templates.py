"""Inductor's compilation of wrappers and kernels, with what takes most of the time compiled once.

That is the templates of `std::regex`, and the C functions that a host calls, which are the same in every wrapper. All
else is compiled as torch compiles it: its text, its headers, its options, and one object of each source. Objects are
kept from session to session.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock
from torch._inductor import codecache, cpp_builder

from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.instrument.builder.compiling import compile_library
from aoti_debug.instrument.builder.compiling.compile_library import DECLARATIONS, compile_templates
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from tests.kept import kept

Run = Callable[[str, str], None]  # runs the command line of a compiler, in a folder
WRAPPER_HEADERS = "torch/csrc/inductor/aoti_include"
_OWN_FILE = re.compile(r'^\s*#\s*include\s*"', re.MULTILINE)


def share() -> None:
    """From now on, in this process. The precompiled headers are others than those of the users of this machine.

    Without effect where Inductor precompiles no headers of wrappers, and with clang.
    """
    if not hasattr(cpp_builder, "run_compile_cmd") or not hasattr(codecache, "_HEADER_DIR"):
        return
    if find_compiler().is_clang:
        return
    headers = cache.directory().with_name("aoti_debug_tests") / f"headers-{cache.key(DECLARATIONS)}"  # not for users
    if str(headers) == codecache._HEADER_DIR:
        return
    codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR = str(headers), str(headers / "locks")
    codecache._precompile_header.cache_clear()
    cpp_builder.run_compile_cmd = sharing(cpp_builder.run_compile_cmd, headers)


def sharing(run: Run, headers: Path) -> Run:
    """Like `run`, except that headers of wrappers declare the templates, that wrappers are compiled in parts, and that
    objects are kept.

    Args:
        headers: the folder of the headers that are precompiled.
    """

    def run_compile_cmd(cmd_line: str, cwd: str) -> None:
        words = shlex.split(cmd_line)
        included = [Path(word) for word in words if word.endswith(".h") and Path(word).parent == headers]
        for header in included:
            _declare(header)
        source = next((word for word in words if word.endswith(".cpp")), None)
        if source is None or "-c" not in words:
            run(cmd_line, cwd)
        elif source.endswith(".wrapper.cpp") and included:
            in_parts = all(header.with_name(f"{header.name}.gch").exists() for header in included)
            _keep(words, cwd, lambda: _compile(source, words, lambda part: run(shlex.join(part), cwd), in_parts))
        else:
            _keep(words, cwd, lambda: run(cmd_line, cwd))

    return run_compile_cmd


def _keep(words: Sequence[str], cwd: str, compile_: Callable[[], None]) -> None:
    """Compiles a source in a folder, unless an object of the same text, name and options is kept.

    The folder of the source, which may be another in each session, does not count.
    """
    source, output = (next(word for word in words if word.endswith(".cpp")), words[words.index("-o") + 1])
    text, made = Path(cwd, source).read_text().partition("// Compile cmd")[0], Path(cwd, output)
    if _OWN_FILE.search(text):
        compile_()
        return

    def make(path: Path) -> None:
        compile_()
        shutil.copyfile(made, path)

    options = [word for word in words if word not in (source, output)]
    found = kept("package.o", [text, Path(source).name, *options], make)
    part = made.with_suffix(f".{os.getpid()}")
    shutil.copyfile(found, part)
    part.replace(made)


def _declare(header: Path) -> None:
    """Declares the templates at the beginning of a header of wrappers."""
    with FileLock(header.with_suffix(".lock")):
        text = header.read_text()
        if WRAPPER_HEADERS in text and DECLARATIONS not in text:
            header.write_text(DECLARATIONS + text)


def _compile(source: str, words: Sequence[str], run: Callable[[Sequence[str]], None], in_parts: bool) -> None:
    """Compiles a wrapper without the templates, and adds their object.

    Args:
        in_parts: compile its C functions apart as well. Each part reads the headers.
    """
    output = words[words.index("-o") + 1]
    options = [word for word in words if word not in ("-c", source, "-o", output)]
    templates = compile_templates(Toolchain(find_compiler(), find_torch()), words)
    assert templates is not None

    def compile_text(text: str, path: Path) -> None:
        path.with_suffix(".cpp").write_text(text)
        run([*options, "-c", str(path.with_suffix(".cpp")), "-o", str(path)])

    text = Path(source).read_text()
    parts = compile_library.split(text) if in_parts else None
    with tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder) / "wrapper.o", templates]
        compile_text(f'#line 1 "{source}"\n{text if parts is None else parts.model}', objects[0])
        if parts is not None:
            functions, key = parts.interface, cache.key(parts.interface, *options)
            made = cache.entry("wrapper-functions", key, lambda entry: compile_text(functions, entry / "functions.o"))
            objects.append(made / "functions.o")
        part = f"{output}.part"
        run([words[0], "-r", "-nostdlib", *map(str, objects), "-o", part])
    os.replace(part, output)
