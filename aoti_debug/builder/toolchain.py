"""The compiler that packages are built with: its commands, and the words of their flags."""

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

# The weights' object does not say that it needs no executable stack, and a stack that is executable may not be loaded.
STACK = "-Wl,-z,noexecstack"
ERROR_LINES = 20
LINE_WIDTH = 300


@dataclass(frozen=True)
class Toolchain:
    """What compiles: a compiler that was checked, for a torch, in at most `jobs` processes at once."""

    compiler: Compiler
    torch: Torch
    jobs: int = max(2, os.cpu_count() or 2)

    def compile(self, source: Path, output: Path, words: Sequence[str]) -> Path:
        """Compiles a file to an object, whose path it returns.

        Raises:
            ToolchainError: it does not compile; the message names the log.
        """
        run([self.compiler.path, "-c", str(source), *words, "-o", str(output)], f"{source.name} does not compile")
        return output

    def key(self, *parts: str) -> str:
        """The name of a cache entry that depends on the compiler, on torch and on `parts`."""
        return cache.key(self.compiler.path, self.compiler.version, self.torch.fingerprint, *parts)


def run(command: list[str], failed: str) -> None:
    """Runs a compiler or a linker.

    Args:
        failed: begins the message of the error.

    Raises:
        ToolchainError: it cannot be started, or ended with an error; its log is kept.
    """
    try:
        ran = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise ToolchainError(
            f"{failed}: {command[0]}: {error.strerror}", hint="set CXX to a working compiler"
        ) from error
    if ran.returncode != 0:
        log = cache.keep_log("compile", f"{shlex.join(command)}\n\n{ran.stdout}{ran.stderr}")
        lines = [line[:LINE_WIDTH] for line in ran.stderr.strip().splitlines()[:ERROR_LINES]]
        raise ToolchainError(
            "\n".join([f"{failed} (exit code {ran.returncode})", *lines, f"log: {log}"]),
            hint="keep the generated C++ with --keep-sources DIR to look at it",
        )


def compile_words(flags: Flags) -> list[str]:
    """Definitions, flags and include directories in the order of Inductor's own command lines."""
    return [
        *[f"-D{definition}" for definition in flags.definitions],
        *[word for flag in flags.cflags for word in shlex.split(f"-{flag}")],
        *[f"-I{path}" for path in flags.include_dirs],
        *flags.passthrough,
    ]


def link_words(flags: Flags) -> tuple[str, ...]:
    """Flags of a linker as words."""
    return (
        *[word for flag in flags.ldflags for word in shlex.split(f"-{flag}")],
        *[f"-l{name}" for name in flags.libraries],
        *[f"-L{path}" for path in flags.libraries_dirs],
    )
