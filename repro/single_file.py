"""A repro as one file: its script, with the modules and tensors at the end."""

from __future__ import annotations

import base64
import io
import re
import textwrap
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.repro.folder import PACKAGE, TEMPLATES, modules_of
from aoti_debug.repro.templates.unpack import MARK
from aoti_debug.runs.rundir.formats.stored_tensor import bytes_of
from aoti_debug.runs.rundir.formats.tensor_file_format import chunks

LIMIT = 1 << 20  # bytes, compressed
HERE = "FOLDER = Path(__file__).resolve().parent"


def single_file(contents: Mapping[str, str | bytes], tensors: Mapping[str, Path], limit: int) -> str:
    """Returns the text of a repro that is one file.

    Args:
        contents: the files of a repro's folder: repro.py and what its kind adds.
        tensors: file name -> where it lies now.
        limit: the most bytes that it may carry, compressed.

    Raises:
        UsageError: it would carry more.
    """
    script = str(contents["repro.py"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, text in modules_of(script).items():
            archive.writestr(_member(f"{PACKAGE}/{name}"), text)
        for name, content in contents.items():
            if name not in ("repro.py", "README"):
                archive.writestr(_member(name), content)
        for name, path in tensors.items():
            _check(bytes_of(path) // 1000, limit)  # deflate gains a factor of 1000 at most
            archive.writestr(_member(f"tensors/{name}"), b"".join(chunks(path)))
            _check(packed.tell(), limit)
    size = len(packed.getvalue())
    _check(size, limit)
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
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise UsageError(
            f"the repro would carry more than {wording.byte_size(limit)} of compressed tensors and modules in one file",
            hint="leave --single-file out, or allow more with --max-size",
        )
