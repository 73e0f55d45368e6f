"""Archives that are malicious, or damaged on the disk."""

from __future__ import annotations

import io
import shutil
import stat
import subprocess
import warnings
import zipfile
from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError, TargetError
from aoti_debug.package.pt2 import archive as pt2_archive
from aoti_debug.package.pt2 import extract
from tests import archives
from tests.disk_usage import DiskUsage

MODEL = f"model/{archives.MODEL}"


def write(path: Path, extra: list[tuple[zipfile.ZipInfo, bytes]], compression: int = zipfile.ZIP_STORED) -> Path:
    """A sound package with further members."""
    archives.write(path, archives.PACKAGE)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a", compression) as archive:
        warnings.simplefilter("ignore")  # zipfile warns of names that are there already
        for info, data in extra:
            archive.writestr(info, data, compression)
    return path


def info(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name)
    member.external_attr = mode << 16
    return member


def unpacked(path: Path, folder: Path, model: str = "model") -> list[str]:
    folder.mkdir()
    extract.unpack(pt2_archive.inspect(path), model, folder)
    return sorted(p.name for p in folder.iterdir())


def test_unpacks_the_files_of_one_model(tmp_path: Path) -> None:
    other = [(info("model/data/aotinductor/other/x.so"), b"x"), (info(f"{MODEL}w.cubin"), b"code")]
    path = write(tmp_path / "m.pt2", other)
    assert unpacked(path, tmp_path / "out") == ["c1.wrapper.so", "c1.wrapper_metadata.json", "w.cubin"]
    assert (tmp_path / "out" / "w.cubin").read_bytes() == b"code"
    assert unpacked(path, tmp_path / "other", "other") == ["x.so"]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ((info("model/../../evil"), b""), "which lies outside the archive; nothing was unpacked"),
        ((info(f"{MODEL}../../../../evil"), b""), "which lies outside the archive; nothing was unpacked"),
        ((info("/etc/evil"), b""), "which lies outside the archive; nothing was unpacked"),
        (
            (info(f"{MODEL}link", stat.S_IFLNK | 0o777), b"/etc/passwd"),
            "holds a link, model/data/aotinductor/model/link",
        ),
        ((info("model/data/weights/link", stat.S_IFLNK | 0o777), b"/etc/passwd"), "holds a link"),
        ((info("model/archive_version"), b"0"), "names model/archive_version twice"),
        ((info(f"{MODEL}{'x' * 256}"), b""), "holds a name of 285 characters"),
        ((info(f"{MODEL}\x1b[31m/\x1b[31m", stat.S_IFLNK | 0o777), b""), r"\x1b[31m/\x1b[31m'"),
        ((info(f"{MODEL}a/b.so"), b""), "holds a folder in the model's folder"),
        ((info(f"{MODEL}c1.wrapper.so"), b"another"), "names model/data/aotinductor/model/c1.wrapper.so twice"),
    ],
)
def test_refuses_members_that_torch_never_writes(
    tmp_path: Path, extra: tuple[zipfile.ZipInfo, bytes], message: str
) -> None:
    path = write(tmp_path / "m.pt2", [extra])
    with pytest.raises(ArtifactError) as caught:
        unpacked(path, tmp_path / "out")
    assert message in str(caught.value)
    assert caught.value.hint.startswith("do not use this file")
    assert not (tmp_path / "evil").exists()
    assert {p.name for p in tmp_path.iterdir()} <= {"m.pt2", "out"}


def test_refuses_a_decompression_bomb_before_unpacking(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt2", [(info(f"{MODEL}w.so"), bytes(1 << 25))], zipfile.ZIP_DEFLATED)
    with pytest.raises(
        ArtifactError, match=r"w\.so, which would grow from \d+ to 33554432 bytes; nothing was unpacked"
    ):
        unpacked(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["archive_version", "data/weights/w", "aoti_debug_manifest.json"])
def test_refuses_a_decompression_bomb_in_any_member(tmp_path: Path, name: str) -> None:
    members = {member: content for member, content in archives.PACKAGE.items() if member != name}
    path = archives.write(tmp_path / "m.pt2", members)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"model/{name}", bytes(1 << 25))
    with pytest.raises(ArtifactError, match=r"would grow from \d+ to 33554432 bytes"):
        pt2_archive.inspect(path)


def test_refuses_other_compressions(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt2", [(info(f"{MODEL}w.so"), b"x")], zipfile.ZIP_BZIP2)
    with pytest.raises(ArtifactError, match=r"in a way that torch does not \(12\)"):
        pt2_archive.inspect(path)


def test_damaged_compressed_data_is_reported(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40
    path = write(tmp_path / "m.pt2", [(info(f"{MODEL}w.so"), data)], zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo(f"{MODEL}w.so").header_offset + 30 + len(f"{MODEL}w.so")
    content = bytearray(path.read_bytes())
    content[start] = 0xFF  # no kind of block
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"is damaged: Error -3"):
        unpacked(path, tmp_path / "out")
    with pytest.raises(ArtifactError, match=r"is damaged: Error -3"):
        pt2_archive.inspect(path).read(f"{archives.MODEL}w.so")


def test_refuses_more_than_the_free_disk_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.pt2", [(info(f"{MODEL}w.so"), bytes(1 << 21))])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: DiskUsage(1 << 30, 0, 1 << 28))
    wanted = r"unpacking .*m\.pt2 needs 2\.0 MiB on the disk of .*, and 256\.0 MiB are free"
    with pytest.raises(TargetError, match=wanted) as caught:
        unpacked(path, tmp_path / "out")
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_a_damaged_member_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt2", [(info(f"{MODEL}w.so"), b"0123456789")])
    data = bytearray(path.read_bytes())
    data[data.index(b"0123456789")] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="is damaged: Bad CRC-32"):
        unpacked(path, tmp_path / "out")


def test_an_encrypted_member_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pt2", [(info(f"{MODEL}w.so"), b"0123456789")])
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 8] |= 1  # the flag of the last member in the central directory
    path.write_bytes(data)
    with pytest.raises(
        ArtifactError, match=r"has a password on model/data/aotinductor/model/w\.so; nothing was unpacked"
    ):
        unpacked(path, tmp_path / "out")


WEIGHTS = b"padding" + b"weights" * 1000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("library")
    (folder / "kernel.c").write_text("int cpp_fused_0(int x) { return x * 3; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", folder / "kernel.c", "-o", folder / "kernel.so"], check=True)
    return (folder / "kernel.so").read_bytes()


def test_what_is_appended_to_a_library_stays_in_the_archive(tmp_path: Path, library: bytes) -> None:
    path = write(tmp_path / "m.pt2", [(info(f"{MODEL}w.so"), library + WEIGHTS), (info(f"{MODEL}x.so"), library)])
    package = pt2_archive.inspect(path)
    (tmp_path / "out").mkdir()
    appended = extract.unpack(package, "model", tmp_path / "out")
    assert (list(appended), extract.bytes_appended(package, "model")) == (["w.so"], len(WEIGHTS))
    for name in ("w.so", "x.so"):
        assert (tmp_path / "out" / name).read_bytes() == library
    out = io.BytesIO()
    extract.copy_part(appended["w.so"].last(7000), out)
    assert out.getvalue() == b"weights" * 1000
    extract.append(package, appended["w.so"], tmp_path / "out" / "w.so")
    assert (tmp_path / "out" / "w.so").read_bytes() == library + WEIGHTS


def test_a_compressed_library_is_unpacked_whole(tmp_path: Path, library: bytes) -> None:
    path = write(tmp_path / "m.pt2", [(info(f"{MODEL}w.so"), library + WEIGHTS)], zipfile.ZIP_DEFLATED)
    (tmp_path / "out").mkdir()
    assert extract.unpack(pt2_archive.inspect(path), "model", tmp_path / "out") == {}
    assert (tmp_path / "out" / "w.so").read_bytes() == library + WEIGHTS


def test_damage_in_what_is_appended_is_reported(tmp_path: Path, library: bytes) -> None:
    path = write(tmp_path / "m.pt2", [(info(f"{MODEL}w.so"), library + WEIGHTS)])
    data = bytearray(path.read_bytes())
    data[data.index(b"weightsweights")] ^= 1
    path.write_bytes(data)
    package = pt2_archive.inspect(path)
    (tmp_path / "out").mkdir()
    appended = extract.unpack(package, "model", tmp_path / "out")
    with pytest.raises(ArtifactError, match="is damaged: Bad CRC-32"):
        extract.append(package, appended["w.so"], tmp_path / "out" / "w.so")
    path.write_bytes(data[:-8000])
    with pytest.raises(ArtifactError, match="is damaged: it is cut off"):
        extract.append(package, appended["w.so"], tmp_path / "out" / "w.so")
