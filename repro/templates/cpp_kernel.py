"""Compiles a generated C++ kernel the way the model's package did, and calls it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Compiler:
    """A compiler's command line. "{torch}" and "{python}" stand for what is installed where the replay runs."""

    command: str
    flags: tuple[str, ...]
    include_dirs: tuple[str, ...]
    link_flags: tuple[str, ...]

    def arguments(self, source: Path, library: Path) -> list[str]:
        command_line = [
            self.command,
            str(source),
            *self.flags,
            *(f"-I{directory}" for directory in self.include_dirs),
            *("-w", "-fPIC", "-shared", "-o", str(library)),
            *self.link_flags,
        ]
        return [_here(word) for word in command_line]


class CppKernel:
    """A C++ function with C linkage. Tensors are passed as their data pointers, numbers as ctypes values."""

    def __init__(self, name: str, source: str, compiler: Compiler, folder: Path) -> None:
        self.name = name
        self.source = source
        self.compiler = compiler
        self.folder = folder
        self._function: Any = None

    def compile(self) -> None:
        """Compiles and loads the kernel; what was compiled before from the same text and command is used again.

        Raises:
            SystemExit: the compiler cannot be run or refuses the source; its messages are shown.
        """
        command = self.compiler.arguments(Path("kernel.cpp"), Path("kernel.so"))
        key = hashlib.sha256("\0".join([self.source, torch.__version__, *command]).encode()).hexdigest()[:16]
        build = self.folder / "build" if os.access(self.folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="repro-"))
        library = build / f"{key}.so"
        if not library.exists():
            build.mkdir(exist_ok=True)
            self._build(build / f"{key}.cpp", library)
        self._function = getattr(ctypes.CDLL(str(library)), self.name)
        self._function.restype = None

    def __call__(self, *arguments: Any) -> None:
        self._function(
            *(ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else a for a in arguments),
        )

    def _build(self, source: Path, library: Path) -> None:
        source.write_text(self.source, encoding="utf-8")
        unfinished = library.with_suffix(f".{os.getpid()}")
        command = self.compiler.arguments(source, unfinished)
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise SystemExit(f"the compiler cannot be run: {error}") from error
        if done.returncode != 0:
            raise SystemExit(f"the kernel does not compile:\n{' '.join(command)}\n{done.stderr}")
        os.replace(unfinished, library)


def _here(word: str) -> str:
    torch_dir = str(Path(torch.__file__).parent)
    return word.replace("{torch}", torch_dir).replace("{python}", sysconfig.get_paths()["include"])
