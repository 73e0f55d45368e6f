"""Writes the folder of a repro, whole or not at all: texts, tensors, and the replay modules that its script needs."""

from __future__ import annotations

import ast
import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.repro.arguments import ReproArguments
from aoti_debug.repro.recorded_launch import RecordedLaunch
from aoti_debug.runs.rundir.formats.tensor_content import chunks
from aoti_debug.runs.rundir.formats.weight_reference import is_reference
from aoti_debug.runs.rundir.timeline import Launch

if TYPE_CHECKING:
    from aoti_debug.repro.kernel_header import KernelHeader

TEMPLATES = Path(__file__).parent / "templates"
PACKAGE = "replay"  # the name that they are imported by
_HEADER = re.compile(r'with_name\("(\w+\.h)"\)')  # a file that a module reads
# Imports as the modules write them: to parse 40 modules takes 35 ms, a fifth of a whole `repro`.
_FROM_MODULE = re.compile(r"^ *from \.(\w+) import ", re.MULTILINE)
_MODULES = re.compile(r"^ *from \. import ([\w, ]+)$", re.MULTILINE)


def modules_of(script: str) -> dict[str, str]:
    """Returns file name -> text of the modules, `__init__.py` among them.

    Args:
        script: the text of repro.py.
    """
    waiting = ["__init__.py", *_imported_by_script(script)]
    names: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += needed_by(name)
    return {name: _text(name) for name in sorted(names)}


@cache
def needed_by(name: str) -> tuple[str, ...]:
    """The modules that a module imports, and the files that it reads."""
    if not name.endswith(".py"):
        return ()
    text = _text(name)
    modules = [*_FROM_MODULE.findall(text), *(name for names in _MODULES.findall(text) for name in names.split(", "))]
    return (*(f"{module}.py" for module in modules), *_HEADER.findall(text))


@cache
def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _imported_by_script(text: str) -> Iterator[str]:
    """Its strings, the source of a kernel among them, may hold lines that look like imports."""
    for node in _statements(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{PACKAGE}."):
            yield f"{node.module.removeprefix(f'{PACKAGE}.')}.py"


def _statements(block: ast.AST) -> Iterator[ast.AST]:
    """Yields the statements in a module or statement, those in others included; expressions hold no imports."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(block, field, ()):
            yield statement
            yield from _statements(statement)


def default_folder(launch: RecordedLaunch | Launch, prefix: str = "repro") -> str:
    """`repro_<kernel>_<launch>`, a legal file name of at most 200 bytes."""
    kernel = re.sub(r"[^A-Za-z0-9._+-]", "_", launch.site.kernel)
    return f"{prefix}_{kernel[:180]}_{launch.id}"


def check_free(folder: Path) -> None:
    """Checks that a path does not exist yet.

    Raises:
        UsageError: something is there already.
    """
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} already exists", hint="remove it, or name another folder with -o")


@contextlib.contextmanager
def unfinished(folder: Path) -> Iterator[Path]:
    """Yields a new folder that becomes `folder` at the end; after an exception nothing is left of it.

    Raises:
        UsageError: the folder is there already or cannot be written.
    """
    check_free(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}.", dir=folder.parent))
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}", hint="name another folder with -o") from error
    try:
        yield new
        new.chmod(0o755)
        new.rename(folder)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}", hint="name another folder with -o") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def write_folder(
    folder: Path,
    contents: Mapping[str, str | bytes],
    arguments: ReproArguments,
    header: KernelHeader | None = None,
) -> None:
    """Writes a repro's folder.

    Args:
        header: precompiled, for a C++ kernel.

    Raises:
        UsageError: the folder is there already or cannot be made.
        RunDirError: a tensor file of the run is gone.
    """
    with unfinished(folder) as new:
        for name, content in contents.items():
            data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
            (new / name).write_bytes(data)
        (new / PACKAGE).mkdir()
        for name, text in modules_of(str(contents["repro.py"])).items():
            (new / PACKAGE / name).write_text(text, encoding="utf-8")
        (new / "tensors").mkdir()
        for name, source in tensor_files(arguments).items():
            _copy_tensor(source, new / "tensors" / name)
        if header is not None:
            header.link_into(new)


def _copy_tensor(source: Path, target: Path) -> None:
    """Copies a saved tensor: a repro has what it needs in it, weights too."""
    if not is_reference(source):
        shutil.copyfile(source, target)
        return
    with target.open("wb") as file:
        for data in chunks(source):
            file.write(data)


def write_file(path: Path, text: str) -> None:
    """Writes a repro that is one file.

    Raises:
        UsageError: something is there already, or the file cannot be written.
    """
    check_free(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write.write(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="name another file with -o") from error


def tensor_files(arguments: ReproArguments) -> dict[str, Path]:
    """Returns file name in tensors/ -> its path in the run directory.

    Raises:
        RunDirError: one is gone.
    """
    copies = {f"before_{a.name}": a.slot.before for a in arguments.tensors}
    copies |= {f"after_{a.name}": a.slot.after for a in arguments.tensors if a.written}
    copies |= {f"after_{r.name}": r.slot.after for r in arguments.results}
    files = {f"{name}.safetensors": source for name, source in copies.items() if source is not None}
    for source in files.values():
        if not source.is_file():
            raise RunDirError(f"{source} is gone", hint="run the package again at level 1")
    return files
