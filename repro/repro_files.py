"""Writes a repro, whole or not at all: a folder or one file, with tensors and the replay modules that it needs."""

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

from aoti_debug.base import wording
from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.base.machine.files import atomic_write, stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.repro.arguments import ReproArguments
from aoti_debug.repro.recorded_launch import RecordedLaunch
from aoti_debug.runs.rundir.formats.stored_tensor import bytes_of
from aoti_debug.runs.rundir.formats.tensor_file_format import chunks
from aoti_debug.runs.rundir.formats.weight_reference import is_reference
from aoti_debug.runs.rundir.launch import Launch

if TYPE_CHECKING:
    import zipfile

    from aoti_debug.repro.kernel_header import KernelHeader

TEMPLATES = Path(__file__).parent / "templates"
SCRIPT = "repro.py"
_HEAD = 4096  # bytes
_WRITTEN = re.compile(rb"^(# )?written by  aoti-debug ", re.MULTILINE)  # in the header of each script
PACKAGE = "replay"  # the name that they are imported by
_HEADER = re.compile(r'with_name\("(\w+\.h)"\)')  # a file that a module reads
# Imports as the modules write them: to parse 40 modules takes 35 ms, a fifth of a whole `repro`.
_FROM_MODULE = re.compile(r"^ *from \.(\w+) import ", re.MULTILINE)
_MODULES = re.compile(r"^ *from \. import ([\w, ]+)$", re.MULTILINE)
LIMIT = 1 << 20  # bytes, compressed
HERE = "FOLDER = Path(__file__).resolve().parent"


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


def default_path(launch: RecordedLaunch | Launch, prefix: str = "repro", suffix: str = "") -> Path:
    """`repro_<kernel>_<launch>` in the home's folder for repros, a legal file name of at most 200 bytes.

    Raises:
        UsageError: the home has no place.
    """
    kernel = re.sub(r"[^A-Za-z0-9._+-]", "_", launch.site.kernel)
    return ResultKind.REPROS.place() / f"{prefix}_{kernel[:180]}_{launch.id}{suffix}"


def check_free(path: Path, *, force: bool = False) -> None:
    """Checks that a repro can be written to a path.

    Args:
        force: an earlier repro there may be replaced.

    Raises:
        UsageError: something is there already; with `force`, something that is no repro.
    """
    if not (path.exists() or path.is_symlink()):
        return
    if not force:
        hint = "--force replaces it, -o names another place" if is_repro(path) else "-o names another place"
        raise UsageError(f"{path} already exists", hint=hint)
    if not is_repro(path):
        raise UsageError(f"{path} is no repro: --force does not replace it", hint="-o names another place")


def is_repro(path: Path) -> bool:
    """True if a script, or that of a folder, says at its beginning that this tool has written it; not for a link."""
    try:
        if path.is_symlink():
            return False
        with (path / SCRIPT if path.is_dir() else path).open("rb") as file:
            return _WRITTEN.search(file.read(_HEAD)) is not None
    except OSError:
        return False


@contextlib.contextmanager
def unfinished(folder: Path, *, force: bool = False) -> Iterator[Path]:
    """Yields a new folder that becomes `folder` at the end; after an exception nothing is left of it.

    Args:
        force: an earlier repro there is replaced.

    Raises:
        UsageError: the folder is there already or cannot be written.
    """
    check_free(folder, force=force)
    try:
        stamped_directories.make_base(folder.parent)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}.", dir=folder.parent))
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}", hint="name another folder with -o") from error
    try:
        yield new
        new.chmod(0o755)
        earlier = new.with_name(f"{new.name}.old")
        if folder.is_dir():
            folder.rename(earlier)
        new.rename(folder)
        shutil.rmtree(earlier, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}", hint="name another folder with -o") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def write_folder(
    folder: Path,
    contents: Mapping[str, str | bytes],
    arguments: ReproArguments,
    header: KernelHeader | None = None,
    *,
    force: bool = False,
) -> None:
    """Writes a repro's folder.

    Args:
        header: precompiled, for a C++ kernel.
        force: an earlier repro there is replaced.

    Raises:
        UsageError: the folder is there already or cannot be made.
        RunDirError: a tensor file of the run is gone.
    """
    with unfinished(folder, force=force) as new:
        for name, content in contents.items():
            data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
            (new / name).write_bytes(data)
        (new / PACKAGE).mkdir()
        for name, text in modules_of(str(contents[SCRIPT])).items():
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


def write_file(path: Path, text: str, *, force: bool = False) -> None:
    """Writes a repro that is one file.

    Args:
        force: an earlier repro there is replaced.

    Raises:
        UsageError: something is there already, or the file cannot be written.
    """
    check_free(path, force=force)
    try:
        stamped_directories.make_base(path.parent)
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


def single_file(contents: Mapping[str, str | bytes], tensors: Mapping[str, Path], limit: int) -> str:
    """Returns the text of a repro that is one file.

    Args:
        contents: the files of a repro's folder: repro.py and what its kind adds.
        tensors: file name -> where it lies now.
        limit: the most bytes that it may carry, compressed.

    Raises:
        UsageError: it would carry more.
    """
    import base64  # these serve few repros
    import io
    import textwrap
    import zipfile

    from aoti_debug.repro.templates.unpack import MARK

    script = str(contents["repro.py"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, text in modules_of(script).items():
            archive.writestr(_member(f"{PACKAGE}/{name}"), text)
        for name, content in contents.items():
            if name not in ("repro.py", "README"):
                archive.writestr(_member(name), content)
        for name, path in tensors.items():
            _check_size(bytes_of(path) // 1000, limit)  # deflate gains a factor of 1000 at most
            archive.writestr(_member(f"tensors/{name}"), b"".join(chunks(path)))
            _check_size(packed.tell(), limit)
    size = len(packed.getvalue())
    _check_size(size, limit)
    assert HERE in script
    head, _, rest = script.partition("\n\n")
    script = "\n".join([head, *_manual(str(contents.get("README", "")))]) + f"\n\n{rest}"
    body = script.replace(HERE, f"{_unpack()}\n\nFOLDER = unpack(Path(__file__).resolve())", 1)
    encoded = base64.b64encode(packed.getvalue()).decode()
    return body + MARK + "\n".join(f"# {line}" for line in textwrap.wrap(encoded, 116)) + "\n"


def _manual(readme: str) -> Iterator[str]:
    """Comments in place of the folder's README."""
    yield "#"
    yield from (f"# {line}" for line in readme.splitlines() if line.startswith("needs "))
    yield "# Its modules and tensors are at the end of this file, which unpacks them into a folder next to it."
    yield "# It compares the outputs with the recorded ones; --help lists the other options."


def _unpack() -> str:
    """The text of the function that finds the rest, with what it imports."""
    text = (TEMPLATES / "unpack.py").read_text(encoding="utf-8")
    return re.sub(r'\A""".*?"""\n+', "", text, flags=re.DOTALL).rstrip()


def _member(name: str) -> zipfile.ZipInfo:
    """With a fixed date: equal contents are equal files."""
    import zipfile

    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise UsageError(
            f"the repro would carry more than {wording.byte_size(limit)} of compressed tensors and modules in one file",
            hint="leave --single-file out, or allow more with --max-size",
        )
