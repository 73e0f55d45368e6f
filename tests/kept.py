"""What tests compile, kept from session to session until something that it is made of changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain

COUNT = 512  # files


def kept(name: str, parts: Sequence[str], make: Callable[[Path], object]) -> Path:
    """A file of this name; `make` writes it, unless there is one of the same parts, compiler and torch.

    Args:
        parts: all else that it depends on: texts and options.
    """
    tools = Toolchain(find_compiler(), find_torch())
    return cache.entry("of-tests", tools.key(name, *parts), lambda folder: make(folder / name), COUNT) / name


def check_once(name: str, parts: Sequence[str], check: Callable[[], object]) -> None:
    """Checks something, unless it was found right before for the same parts, compiler and torch.

    Args:
        parts: all else that the result of the check depends on.
    """

    def make(path: Path) -> None:
        check()
        path.touch()

    kept(name, parts, make)


def contents(*paths: Path) -> list[str]:
    """The names of files and the hashes of what they hold, as parts of what is made of them."""
    return sorted(f"{path.name} {sha256(path.read_bytes()).hexdigest()}" for path in paths)
