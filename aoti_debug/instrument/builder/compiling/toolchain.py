"""The compiler and torch that packages are built with, and their command lines."""

from __future__ import annotations

import os
import shlex
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

RUNTIME = Path(__file__).parents[3] / "runtime_shims"


# The weights' object file does not mark its stack as non-executable; a system may refuse to load such a library.
NO_EXEC_STACK = "-Wl,-z,noexecstack"
ERROR_LINES = 20
LINE_WIDTH = 300


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
