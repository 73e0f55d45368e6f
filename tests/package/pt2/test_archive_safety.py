"""Directories of archives as data: the largest that is allowed, and the smallest that is refused."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.package.pt2 import archive_safety

PATH = Path("m.pt2")
LARGE = 1 << 24  # bytes; smaller members may have any compression ratio


def member(name: str = "model/w", **fields: Any) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.file_size = info.compress_size = 0
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def refusal(*members: zipfile.ZipInfo) -> str:
    return refusal_of(members)


def refusal_of(members: Sequence[zipfile.ZipInfo]) -> str:
    """The message without the archive's name; "" if the members are allowed."""
    try:
        archive_safety.check(PATH, members)
    except ArtifactError as error:
        return str(error).removeprefix("m.pt2 ").removesuffix("; nothing was unpacked")
    return ""


class LongDirectory(list[zipfile.ZipInfo]):
    """A directory of one member that says that it has more."""

    def __init__(self, length: int) -> None:
        super().__init__([member()])
        self._length = length

    def __len__(self) -> int:
        return self._length


def test_the_number_of_members() -> None:
    assert refusal_of([]) == ""
    assert refusal_of(LongDirectory(1_000_000)) == ""
    assert refusal_of(LongDirectory(1_000_001)) == "holds 1000001 members"


@pytest.mark.parametrize("name", ["x", ":", "model/c:d", "model/..x", "model/a b", "model/.../w"])
def test_names_inside_of_the_archive(name: str) -> None:
    assert refusal(member(name)) == ""


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("/w", "/w"),
        ("..", ".."),
        ("model/../../w", "model/../../w"),
        ("c:", "c:"),
        ("c:w", "c:w"),
        ("\\w", "\\w"),
        ("model\\w", "model\\w"),
        ("model/a\0b", r"'model/a\x00b'"),
    ],
)
def test_names_outside_of_the_archive(name: str, printed: str) -> None:
    assert refusal(member(name)) == f"names a member {printed}, which lies outside the archive"


@pytest.mark.parametrize(
    ("member_", "message"),
    [
        (member(external_attr=(stat.S_IFLNK | 0o777) << 16), "holds a link, model/w"),
        (member(external_attr=(stat.S_IFREG | 0o777) << 16), ""),
        (member("model/" + "x" * 255), ""),
        (member("model/" + "x" * 256), f"holds a name of 262 characters, …{'x' * 60}"),
        (member("model/" + "é" * 127), ""),  # 254 bytes
        (member("model/" + "é" * 128), f"holds a name of 134 characters, …{'é' * 60}"),
        (member("x" * 200 + "/" + "y" * 200), ""),
        (member(flag_bits=1 << 0), "has a password on model/w"),
        (member(flag_bits=1 << 6), "has a password on model/w"),
        (member(flag_bits=1 << 5), "holds model/w as a patch"),
        (member(flag_bits=~(1 << 0 | 1 << 5 | 1 << 6) & 0xFFFF), ""),
        (member(compress_type=zipfile.ZIP_DEFLATED), ""),
        (member(compress_type=zipfile.ZIP_LZMA), "compresses model/w in a way that torch does not (14)"),
    ],
)
def test_members_that_torch_does_and_does_not_write(member_: zipfile.ZipInfo, message: str) -> None:
    assert refusal(member_) == message


@pytest.mark.parametrize(
    ("unpacked", "stored", "allowed"),
    [
        (LARGE, 0, True),
        (LARGE + 1, 0, False),
        (LARGE + 1, 1 << 20, True),
        (200 << 20, 1 << 20, True),
        ((200 << 20) + 1, 1 << 20, False),
    ],
)
def test_the_compression_of_a_member(unpacked: int, stored: int, allowed: bool) -> None:
    message = f"holds model/w, which would grow from {stored} to {unpacked} bytes"
    assert refusal(member(file_size=unpacked, compress_size=stored)) == ("" if allowed else message)


def test_the_compression_of_all_members_together() -> None:
    half = {"file_size": LARGE // 2, "compress_size": 100}
    two = member("model/a", **half), member("model/b", **half)
    assert refusal(*two) == ""
    assert refusal(*two, member("model/c", file_size=1)) == "would grow from 200 to 16777217 bytes"


def test_a_name_that_occurs_twice() -> None:
    a, b = member("model/a"), member("model/b")
    assert refusal(a, b) == ""
    assert refusal(a, b, b) == "names model/b twice"
    assert refusal(b, a, b, b) == "names model/b twice"


def test_names_in_messages() -> None:
    assert archive_safety.printable("x" * 60) == "x" * 60
    assert archive_safety.printable("a" + "x" * 60) == "…" + "x" * 60
    assert archive_safety.printable("a\x1b") == r"'a\x1b'"
