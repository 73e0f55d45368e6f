"""The compiler and torch that packages are built with, and their command lines."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aoti_debug.errors import ToolchainError
from aoti_debug.frontend.sources import Flags
from aoti_debug.machine import cache
from aoti_debug.machine.compiler import Compiler, Torch

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

    def compile(self, source: Path, output: Path, words: Sequence[str]) -> Path:
        """Compiles a source file and returns the path of the object.

        Raises:
            ToolchainError: it does not compile; the message names the log.
        """
        run([self.compiler.path, "-c", str(source), *words, "-o", str(output)], f"{source.name} does not compile")
        return output

    def key(self, *parts: str) -> str:
        """The key of a cache entry that depends on the compiler, on torch and on `parts`."""
        return cache.key(self.compiler.path, self.compiler.version, self.torch.fingerprint, *parts)


def run(command: list[str], failed: str) -> None:
    """Runs a compiler or a linker.

    Args:
        failed: the beginning of the error message.

    Raises:
        ToolchainError: it cannot be started, or ended with an error; its log is kept.
    """
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise ToolchainError(
            f"{failed}: {command[0]}: {error.strerror}", hint="set CXX to a working compiler"
        ) from error
    if result.returncode != 0:
        log = cache.keep_log("compile", f"{shlex.join(command)}\n\n{result.stdout}{result.stderr}")
        lines = [line[:LINE_WIDTH] for line in result.stderr.strip().splitlines()[:ERROR_LINES]]
        raise ToolchainError(
            "\n".join([f"{failed} (exit code {result.returncode})", *lines, f"log: {log}"]),
            hint="keep the generated C++ with --keep-sources DIR to look at it",
        )


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
