"""The compiler and torch that packages are built with, and their command lines."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aoti_debug.errors import ToolchainError
from aoti_debug.frontend.sources import Flags
from aoti_debug.machine import cache
from aoti_debug.machine.compiler import Compiler, Torch
from aoti_debug.machine.process import Children

# The weights' object file does not mark its stack as non-executable; a system may refuse to load such a library.
NO_EXEC_STACK = "-Wl,-z,noexecstack"
ERROR_LINES = 20
LINE_WIDTH = 300


@dataclass(frozen=True)
class Toolchain:
    """A checked compiler and the installed torch; at most `jobs` compilers run at once."""

    compiler: Compiler
    torch: Torch
    jobs: int = max(2, os.cpu_count() or 2)
    children: Children = field(default_factory=Children, compare=False)  # the compilers and linkers that run

    def compile(self, source: Path, output: Path, words: Sequence[str]) -> Path:
        """Compiles a source file and returns the path of the object.

        Raises:
            ToolchainError: it does not compile; the message names the log.
        """
        self.run([self.compiler.path, "-c", str(source), *words, "-o", str(output)], f"{source.name} does not compile")
        return output

    def run(self, command: Sequence[str], failed: str) -> None:
        """Runs a compiler or a linker.

        Args:
            failed: the beginning of the error message.

        Raises:
            ToolchainError: it cannot be started, or ended with an error; its log is kept. Or `children` were killed.
        """
        try:
            result = self.children.run(command)
        except OSError as error:
            raise ToolchainError(
                f"{failed}: {command[0]}: {error.strerror}", hint="set CXX to a working compiler"
            ) from error
        if self.children.killed:
            raise ToolchainError(f"{failed}: it was interrupted")
        if result.code != 0:
            log = cache.keep_log("compile", f"{shlex.join(command)}\n\n{result.stdout}{result.stderr}")
            lines = [line[:LINE_WIDTH] for line in result.stderr.strip().splitlines()[:ERROR_LINES]]
            raise ToolchainError(
                "\n".join([f"{failed} (exit code {result.code})", *lines, f"log: {log}"]),
                hint="keep the generated C++ with --keep-sources DIR to look at it",
            )

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
