"""Parses the compiler commands that Inductor writes at the end of a wrapper, and adapts them to this machine.

Their paths belong to the machine that compiled the package: directories of torch, Python and CUDA are replaced by
this machine's, and directories that do not exist here are dropped.
"""

from __future__ import annotations

import re
import shlex
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import compiler
from aoti_debug.instrument.frontend.sources import Flags

_COMMAND = re.compile(r"^// (Compile|Link) cmd\n// (.*)$", re.MULTILINE)
_WITH_VALUE = ("-D", "-include", "-o", "-x", "-isystem", "-Xclang")
_COMPILER_SPECIFIC = ("Werror", "flto")  # another compiler may not know them; launches do not depend on them
_TORCH_INCLUDE = re.compile(r".*/torch/include(/.*)?\Z")
_TORCH_LIBRARIES = re.compile(r".*/torch/lib\Z")
_PYTHON_INCLUDE = re.compile(r".*/include/python[\d.]+\Z")
_CUDA = re.compile(r".*/cuda(?:-[\d.]+)?/(include|lib64|targets/.*)\Z")


@dataclass(frozen=True)
class CompileCommands:
    """The compile and link commands of a package.

    Attributes:
        optimization: level of the wrapper: "O1".
        left_out: include directories that do not exist on this machine.
    """

    compile: Flags
    link: Flags
    optimization: str
    left_out: tuple[str, ...]


def parse(text: str, torch: Path) -> CompileCommands | None:
    """Parses the commands at the end of a wrapper; None if there are none that can be read.

    Args:
        torch: directory of the installed torch.
    """
    commands = {m.group(1): _split(m.group(2)) for m in _COMMAND.finditer(text)}
    if not commands.get("Compile") or not commands.get("Link"):
        return None
    compile_, link = (_Words(commands[name], torch) for name in ("Compile", "Link"))
    level = next((flag for flag in compile_.cflags if re.fullmatch(r"O[0-3s]", flag)), "O1")
    return CompileCommands(
        compile_.flags(optimized="O3"), link.flags(optimized="O3"), level, tuple(dict.fromkeys(compile_.left_out))
    )


def relocate_flags(flags: Flags, torch: Path) -> Flags:
    """Replaces the directories of another machine in its flags by this machine's."""
    return replace(
        flags,
        cflags=tuple(flag for flag in flags.cflags if not flag.startswith(_COMPILER_SPECIFIC)),
        include_dirs=_local_directories(flags.include_dirs, torch),
        libraries_dirs=_local_directories(flags.libraries_dirs, torch),
    )


def _split(command: str) -> list[str]:
    """The words of a command line; none if its quotes do not match."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _local_directories(paths: Iterable[str], torch: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(local for path in paths if (local := _local_directory(path, torch))))


def _local_directory(path: str, torch: Path) -> str:
    """This machine's equivalent of a directory of the other machine; "" if there is none."""
    if match := _TORCH_INCLUDE.match(path):
        return f"{torch}/include{match.group(1) or ''}"
    if _TORCH_LIBRARIES.match(path):
        return f"{torch}/lib"
    if _PYTHON_INCLUDE.match(path):
        return sysconfig.get_path("include")
    if Path(path).is_dir():
        return path
    match = _CUDA.match(path)
    local = compiler.find_directory(match.group(1)) if match else None
    return str(local) if local else ""


class _Words:
    """The words of one command line, sorted by kind."""

    def __init__(self, words: Sequence[str], torch: Path) -> None:
        self._torch = torch
        self.compiler = words[0]
        self.definitions: list[str] = []
        self.include_dirs: list[str] = []
        self.cflags: list[str] = []
        self.library_dirs: list[str] = []
        self.libraries: list[str] = []
        self.left_out: list[str] = []
        for option, value in _options(words[1:]):
            self._sort(option, value)

    def _sort(self, option: str, value: str) -> None:
        match option:
            case "-D":
                self.definitions.append(value)
            case "-I" | "-isystem":
                self._directory(value, self.include_dirs)
            case "-L":
                self._directory(value, self.library_dirs)
            case "-l":
                self.libraries.append(value)
            case "-c" | "-o" | "-include" | "-x" | "-Xclang" | "":
                pass
            case _ if not option.removeprefix("-").startswith(("Wl,", *_COMPILER_SPECIFIC)):
                self.cflags.append(option.removeprefix("-"))

    def _directory(self, path: str, directories: list[str]) -> None:
        local = _local_directory(path, self._torch)
        (directories if local else self.left_out).append(local or path)

    def flags(self, optimized: str) -> Flags:
        return Flags(
            compiler=self.compiler,
            definitions=tuple(self.definitions),
            include_dirs=tuple(dict.fromkeys(self.include_dirs)),
            cflags=tuple(optimized if re.fullmatch(r"O[0-3s]", flag) else flag for flag in self.cflags),
            ldflags=(),
            libraries_dirs=tuple(dict.fromkeys(self.library_dirs)),
            libraries=tuple(self.libraries),
            passthrough=(),
        )


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields options with their values; ("", file) for a word that is not an option."""
    remaining = iter(words)
    for word in remaining:
        if word in _WITH_VALUE:
            yield word, next(remaining, "")
        elif word[:2] in ("-D", "-I", "-L", "-l") and len(word) > 2:
            yield word[:2], word[2:]
        else:
            yield (word, "") if word.startswith("-") else ("", word)
