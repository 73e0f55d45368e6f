"""The compiler and torch that packages are built with, their command lines, and the objects and headers that are kept.

The repro of a kernel is compiled with the precompiled header of its package.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from aoti_debug.base.errors import TargetError, ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache, exhaustion
from aoti_debug.base.machine.compiler import Compiler, Torch
from aoti_debug.base.machine.processes import child_process
from aoti_debug.base.machine.processes.child_process import Children
from aoti_debug.base.machine.user_directories import scratch_directory
from aoti_debug.instrument.frontend.sources import Flags
from aoti_debug.package.manifest import KernelCompilation

RUNTIME = Path(__file__).parents[3] / "runtime_shims"


# The weights' object file does not mark its stack as non-executable; a system may refuse to load such a library.
NO_EXEC_STACK = "-Wl,-z,noexecstack"
ERROR_LINES = 20
LINE_WIDTH = 300
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


class CompileError(ToolchainError):
    """A compiler or linker has ended with an error.

    Attributes:
        command: the command line.
        code: its exit code, as in `Child.wait`.
        output: what it wrote to stderr.
    """

    def __init__(self, message: str, command: Sequence[str], code: int, output: str) -> None:
        super().__init__(message, hint="keep the generated C++ with --keep-sources DIR to look at it")
        self.command = tuple(command)
        self.code = code
        self.output = output

    @property
    def compiler(self) -> str:
        """The program."""
        return self.command[0]

    @property
    def source(self) -> str:
        """The file that was compiled; "" for a linker."""
        return self.command[2] if self.command[1] == "-c" else ""

    @property
    def words(self) -> tuple[str, ...]:
        """The options for compiling a file, without the names of files."""
        return self.command[3:-2]


@dataclass(frozen=True)
class Toolchain:
    """A checked compiler and the installed torch; at most `jobs` compilers run at once."""

    compiler: Compiler
    torch: Torch
    jobs: int = max(2, os.cpu_count() or 2)
    children: Children = field(default_factory=Children, compare=False)  # the compilers and linkers that run

    def compile(self, source: Path, output: Path, words: Sequence[str], warnings: Path | None = None) -> Path:
        """Compiles a source file and returns the path of the object.

        Args:
            warnings: the file that takes what the compiler has to say of a source that compiles.

        Raises:
            CompileError: it does not compile; the message names the log.
            ToolchainError: the compiler cannot be started, or was interrupted.
        """
        command = [self.compiler.path, "-c", str(source), *words, "-o", str(output)]
        text = self.run(command, f"{source.name} does not compile")
        if warnings is not None:
            warnings.write_text(text)
        return output

    def run(self, command: Sequence[str], failed: str) -> str:
        """Runs a compiler or a linker, and returns what it wrote to stderr.

        Args:
            failed: the beginning of the error message.

        Raises:
            CompileError: it ended with an error; its log is kept.
            ToolchainError: it cannot be started, or `children` were killed.
            TargetError: it lacks memory or disk space.
        """
        try:
            # A compiler that is killed leaves its temporary files.
            with scratch_directory() as temporary:
                result = self.children.run(command, {**os.environ, "TMPDIR": str(temporary)})
        except OSError as error:
            lack = exhaustion.exhausted(error)
            if lack is not None:
                raise TargetError(f"{failed}: {lack.text}", hint=lack.hint) from error
            raise ToolchainError(
                f"{failed}: {command[0]}: {error.strerror}", hint="set CXX to a working compiler"
            ) from error
        if self.children.killed:
            raise ToolchainError(f"{failed}: it was interrupted")
        if result.code != 0:
            log = cache.keep_log("compile", f"{shlex.join(command)}\n\n{result.stdout}{result.stderr}")
            lines = [line[:LINE_WIDTH] for line in result.stderr.strip().splitlines()[:ERROR_LINES]]
            ended = child_process.describe_exit(result.code)
            message = "\n".join([f"{failed} ({ended})", *lines, f"log: {log}"])
            lacks = exhaustion.lacking(result.stderr)
            if lacks:
                raise TargetError(message, hint=exhaustion.hint_for(lacks))
            raise CompileError(message, command, result.code, result.stderr)
        return result.stderr

    def key(self, *parts: str) -> str:
        """The key of a cache entry that depends on the compiler, on torch and on `parts`."""
        return cache.key(self.compiler.path, self.compiler.version, self.torch.fingerprint, *parts)


def compile_words(flags: Flags) -> list[str]:
    """Definitions, flags and include directories as command line words, in Inductor's order."""
    return [
        *[f"-D{definition}" for definition in flags.definitions],
        *[word for flag in flags.cflags for word in shlex.split(f"-{flag}")],
        *[f"-I{path}" for path in flags.include_dirs],
        *flags.passthrough,
    ]


def link_words(flags: Flags) -> tuple[str, ...]:
    """Linker flags, libraries and library directories as command line words."""
    return (
        *[word for flag in flags.ldflags for word in shlex.split(f"-{flag}")],
        *[f"-l{name}" for name in flags.libraries],
        *[f"-L{path}" for path in flags.libraries_dirs],
    )


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
