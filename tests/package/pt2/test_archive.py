from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.package import manifest
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2 import archive as pt2_archive
from aoti_debug.package.pt2.archive import ArtifactKind
from tests import archives

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
        archive.check(PATH, members)
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
    assert archive.printable("x" * 60) == "x" * 60
    assert archive.printable("a" + "x" * 60) == "…" + "x" * 60
    assert archive.printable("a\x1b") == r"'a\x1b'"


INSTRUMENTED = {**archives.PACKAGE, manifest.MEMBER: b"{}"}


@pytest.mark.parametrize(
    ("members", "kind", "models"),
    [
        (archives.PROGRAM, ArtifactKind.EXPORTED, ("model",)),
        ({**archives.PROGRAM, "models/other.json": b"{}"}, ArtifactKind.EXPORTED, ("model", "other")),
        ({"serialized_exported_program.json": b"{}"}, ArtifactKind.EXPORTED, ("model",)),
        (archives.PACKAGE, ArtifactKind.PACKAGE, ("model",)),
        (archives.SOURCES, ArtifactKind.SOURCES, ("model",)),
        (INSTRUMENTED, ArtifactKind.INSTRUMENTED, ("model",)),
    ],
)
def test_kinds_of_archives(
    tmp_path: Path, members: dict[str, bytes], kind: ArtifactKind, models: tuple[str, ...]
) -> None:
    artifact = pt2_archive.inspect(archives.write(tmp_path / "x.pt2", members, root="weird name"))
    assert (artifact.kind, artifact.root, artifact.models) == (kind, "weird name", models)
    assert artifact.members == tuple(members)


@pytest.mark.parametrize(
    ("content", "looks_like"),
    [
        (b"", "empty"),
        (b"\x7fELF\x02\x01", "a shared library or program"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer (run git lfs pull)"),
        (b"\x80\x02}q\x00.", "a pickle"),
        (b'\x10\0\0\0\0\0\0\0{"x":{}}        ', "a safetensors file"),
        (b' {"a": 1}', "JSON"),
        (b"import torch\n", "text"),
        (b"\t\r\n ~", "text"),
        (b"x" * 512 + b"\0", "text"),  # by the first 512 bytes
        (b"x" * 511 + b"\0", "not a zip archive"),
        (b'\0\0\0\0\1\0\0\0{"x":{}}', "not a zip archive"),  # a header of 4 GiB
        (b"\x00\x01\x02\xff", "not a zip archive"),
    ],
)
def test_other_files_are_named_in_the_message(tmp_path: Path, content: bytes, looks_like: str) -> None:
    path = tmp_path / "x.pt2"
    path.write_bytes(content)
    with pytest.raises(ArtifactError) as caught:
        pt2_archive.inspect(path)
    assert str(caught.value) == f"{path} is {looks_like}, not a .pt2"
    of_program = "pass the .pt2 that it loads; of a host program that died or hangs, its core file with --package"
    of_others = "pass a .pt2 written by torch.export.save or aoti_compile_and_package"
    assert caught.value.hint == (of_program if "program" in looks_like else of_others)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"data.pkl": b""}, "{path} is written by torch.save, not a .pt2"),
        ({"data.pkl": b"", "code/m.py": b""}, "{path} is a TorchScript model, not a .pt2"),
        ({"versions.json": b"", "report/index.html": b""}, "{path} is a bundle, not a .pt2"),
        ({"readme.txt": b""}, "{path} is a zip archive, but no .pt2"),
        ({"!a/x": b"", "!b/x": b""}, "{path} is a zip archive, but no .pt2"),
        ({}, "{path} is an empty zip archive"),
        (
            {**archives.PROGRAM, "archive_version": b"7"},
            "{path} is an exported program in archive format 7; the newest known format is 0",
        ),
    ],
)
def test_refuses_other_archives(tmp_path: Path, members: dict[str, bytes], message: str) -> None:
    path = archives.write(tmp_path / "x.pt2", members)
    with pytest.raises(ArtifactError) as caught:
        pt2_archive.inspect(path)
    assert str(caught.value) == message.format(path=path)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "model/../../evil", "C:/evil", "model\\..\\evil"])
def test_refuses_names_outside_the_archive(tmp_path: Path, name: str) -> None:
    path = archives.write(tmp_path / "x.pt2", {**archives.PROGRAM, f"!{name}": b"x"})
    with pytest.raises(ArtifactError, match="outside the archive; nothing was unpacked"):
        pt2_archive.inspect(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kept", [4, 60, 200])
def test_refuses_truncated_archives(tmp_path: Path, kept: int) -> None:
    path = archives.write(tmp_path / "x.pt2", archives.PROGRAM)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ArtifactError, match=r"x\.pt2 is a truncated or damaged zip archive"):
        pt2_archive.inspect(path)


def test_refuses_members_that_reach_past_the_data(tmp_path: Path) -> None:
    path = archives.write(tmp_path / "x.pt2", archives.PROGRAM)
    with zipfile.ZipFile(path) as archive:
        start = archive.start_dir
    space = start - 30  # behind the first member's header

    def stored_bytes(size: int) -> None:
        data = bytearray(path.read_bytes())
        data[start + 20 : start + 24] = size.to_bytes(4, "little")  # the first member's compressed size
        path.write_bytes(data)

    stored_bytes(space)
    assert pt2_archive.inspect(path).kind is ArtifactKind.EXPORTED
    stored_bytes(space + 1)
    with pytest.raises(ArtifactError, match=r"models/model\.json reaches past the end of its data"):
        pt2_archive.inspect(path)


def test_folders_are_no_members(tmp_path: Path) -> None:
    path = archives.write(tmp_path / "x.pt2", {"models/": b"", **archives.PROGRAM})
    assert pt2_archive.inspect(path).members == tuple(archives.PROGRAM)


def test_the_sources_of_wrappers(tmp_path: Path) -> None:
    members = {
        f"{archives.MODEL}a.wrapper.cpp": b"",
        f"{archives.MODEL}b.wrapper.cpp": b"class AOTInductorModel {};",
        f"{archives.MODEL}b.kernel.cpp": b"class AOTInductorModel {};",
        "data/aotinductor/stripped/c.wrapper.cpp": b"",
        **archives.FRAME,
    }
    package = pt2_archive.inspect(archives.write(tmp_path / "x.pt2", members))
    assert package.wrapper_sources("model") == (f"{archives.MODEL}a.wrapper.cpp", f"{archives.MODEL}b.wrapper.cpp")
    assert [package.has_source(model) for model in ("model", "stripped", "mod")] == [True, False, False]


def test_a_model_of_a_package_is_named_unless_it_is_the_only_one(tmp_path: Path) -> None:
    one = pt2_archive.inspect(archives.write(tmp_path / "one.pt2", archives.PACKAGE))
    members = {**archives.PACKAGE, "data/aotinductor/decoder/x.so": b""}
    two = pt2_archive.inspect(archives.write(tmp_path / "two.pt2", members))
    assert pt2_archive.resolve_model(one, "") == pt2_archive.resolve_model(one, "model") == "model"
    assert pt2_archive.resolve_model(two, "decoder") == "decoder"
    with pytest.raises(UsageError, match=r"two\.pt2 holds 2 models") as unnamed:
        pt2_archive.resolve_model(two, "")
    assert unnamed.value.hint == "name one with --model: decoder, model"
    with pytest.raises(UsageError, match=r"two\.pt2 holds no model 'other'") as unknown:
        pt2_archive.resolve_model(two, "other")
    assert unknown.value.hint == "it holds decoder, model"


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="does not exist"):
        pt2_archive.inspect(tmp_path / "none.pt2")
    with pytest.raises(ArtifactError, match="is a directory"):
        pt2_archive.inspect(tmp_path)


@pytest.mark.parametrize(
    ("members", "required", "message", "hint"),
    [
        (
            archives.PACKAGE,
            ArtifactKind.EXPORTED,
            "{path} is a compiled AOTInductor package; an exported program is required",
            "pass the exported program that it was compiled from (torch.export.save(torch.export.export(...), path))",
        ),
        (
            INSTRUMENTED,
            ArtifactKind.EXPORTED,
            "{path} is an instrumented package; an exported program is required",
            "it is built already: aoti-debug run {path}",
        ),
        (
            archives.PROGRAM,
            ArtifactKind.INSTRUMENTED,
            "{path} is an exported program; an instrumented package is required",
            "build it first: aoti-debug build {path}",
        ),
    ],
)
def test_a_wrong_kind_is_named_with_the_required_one(
    tmp_path: Path, members: dict[str, bytes], required: ArtifactKind, message: str, hint: str
) -> None:
    path = archives.write(tmp_path / "x.pt2", members)
    artifact = pt2_archive.inspect(path)
    pt2_archive.require_kind(artifact, artifact.kind)
    with pytest.raises(ArtifactError) as caught:
        pt2_archive.require_kind(artifact, required)
    assert (str(caught.value), caught.value.hint) == (message.format(path=path), hint.format(path=path))


def test_reading_a_member(tmp_path: Path) -> None:
    artifact = pt2_archive.inspect(archives.write(tmp_path / "x.pt2", archives.PROGRAM))
    assert artifact.read("byteorder") == b"little"
    with pytest.raises(ArtifactError, match="has no nothing"):
        artifact.read("nothing")


def test_a_member_that_the_system_does_not_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    package = archive.inspect(archives.write(tmp_path / "x.pt2", archives.PROGRAM))
    monkeypatch.setattr(zipfile.ZipExtFile, "read", fail)
    with pytest.raises(ArtifactError, match=r"byteorder in .* cannot be read: Input/output error$") as caught:
        package.read("byteorder")
    assert caught.value.hint.startswith("the file system reports an error")


def test_a_member_with_flipped_bytes_is_damaged(tmp_path: Path) -> None:
    path = archives.write(tmp_path / "x.pt2", {**INSTRUMENTED, manifest.MEMBER: b"manifest-text"})
    path.write_bytes(path.read_bytes().replace(b"manifest-text", b"manifest-tuxt"))
    with pytest.raises(ArtifactError, match=r"aoti_debug_manifest\.json in .* is damaged"):
        pt2_archive.inspect(path).manifest()


def test_works_without_torch() -> None:
    code = "import sys, aoti_debug.package.pt2.archive; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
