"""Packages and programs from an untrusted source, and damaged ones: nothing of them runs unasked."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import time
import zipfile
from pathlib import Path

import pytest
import torch

from aoti_debug.app.cli import main
from aoti_debug.package.pt2 import archive, trust


def copy_with(source: Path, target: Path, change: dict[str, bytes]) -> None:
    """Copies a package; members whose names end in a key of `change` get its content behind their own."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            added = next((content for ending, content in change.items() if name.endswith(ending)), b"")
            new.writestr(name, old.read(name) + added)


def flip_byte_of(path: Path, ending: str) -> None:
    """Flips a byte in the content of a stored member."""
    with zipfile.ZipFile(path) as package:
        info = next(info for info in package.infolist() if info.filename.endswith(ending))
    data = bytearray(path.read_bytes())
    data[info.header_offset + 30 + len(info.filename) + info.file_size // 2] ^= 0xFF
    path.write_bytes(data)


def run(path: Path, tmp_path: Path, *options: str) -> int:
    return main.run(["run", str(path), "--out", str(tmp_path / "runs"), *options])


def test_a_package_that_was_built_here_runs_wherever_it_lies(faulty_package: Path, tmp_path: Path) -> None:
    shutil.copy(faulty_package, tmp_path / "copy.pt2")
    (tmp_path / "copy.pt2").chmod(0o666)
    assert run(tmp_path / "copy.pt2", tmp_path) == 0


def test_a_package_that_was_changed_asks_first(
    faulty_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "changed.pt2"
    copy_with(faulty_package, changed, {".so": b"more"})
    for command in (["run", str(changed)], ["triage", str(changed), "--out", str(tmp_path / "triages")]):
        assert main.run(command) == 2
        error = capsys.readouterr().err
        assert "was not built on this account; the machine code of its library would run" in error
        assert "after the import of tests.faulty_ops" in error
        assert "hint: if you trust whoever made it: --trust" in error
    assert not (tmp_path / "runs").exists()
    assert run(changed, tmp_path, "--trust") == 0
    assert run(changed, tmp_path) == 0


def test_flipped_bytes_of_a_library_are_noticed(
    faulty_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.pt2"
    shutil.copy(faulty_package, damaged)
    flip_byte_of(damaged, ".so")
    for options in ([], ["--trust"]):
        assert run(damaged, tmp_path, *options) == 3
        assert "is damaged" in capsys.readouterr().err
    assert main.run(["triage", str(damaged), "--out", str(tmp_path / "triages")]) == 3


class Owned:
    """Executes code when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.file),)


@pytest.fixture
def hostile_program(tmp_path: Path) -> Path:
    """An exported program whose example inputs execute code when torch loads them."""
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    torch.export.save(program, tmp_path / "plain.pt2")
    payload = io.BytesIO()
    torch.save(Owned(tmp_path / "owned"), payload)
    path = tmp_path / "hostile.pt2"
    with zipfile.ZipFile(tmp_path / "plain.pt2") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, payload.getvalue() if "sample_inputs" in name else old.read(name))
    return path


@pytest.mark.parametrize("mark", ["downloaded", "open", "foreign"])
@pytest.mark.parametrize("command", ["build", "triage"])
def test_a_program_of_somebody_else_asks_first(
    hostile_program: Path, tmp_path: Path, command: str, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = {"downloaded": "was downloaded from https://evil", "open": "can be written by other users"}
    if mark == "downloaded":
        try:
            os.setxattr(hostile_program, trust._ORIGIN, b"https://evil\x1b[2J")
        except OSError:
            pytest.skip("the file system has no extended attributes")
    elif mark == "open":
        hostile_program.chmod(0o666)
    elif os.getuid() == 0:
        os.chown(hostile_program, 12345, 12345)
    else:
        pytest.skip("only root can make a file of another user")
    options = ["--out", str(tmp_path / "triages")] if command == "triage" else ["-o", str(tmp_path / "out.pt2")]
    assert main.run([command, str(hostile_program), *options]) == 2
    error = capsys.readouterr().err
    assert expected.get(mark, "belongs to the user 12345") in error
    assert "torch would unpickle its objects" in error
    assert "\x1b" not in error
    assert not (tmp_path / "owned").exists()


def test_inputs_execute_nothing(faulty_package: Path, tmp_path: Path) -> None:
    torch.save((Owned(tmp_path / "owned"),), tmp_path / "inputs.pt")
    assert run(faulty_package, tmp_path, "--inputs", str(tmp_path / "inputs.pt")) == 3
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Owned(tmp_path / "owned")))
    assert run(faulty_package, tmp_path, "--inputs", str(tmp_path / "raw.pt")) == 3
    assert not (tmp_path / "owned").exists()


def test_many_members_that_grow_are_refused_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bomb.pt2"
    content = bytes((1 << 24) - 1)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for index in range(30):
            package.writestr(f"model/data/aotinductor/model/{index}.so", content)
    began = time.monotonic()
    assert main.run(["run", str(path)]) == 3
    assert time.monotonic() - began < 2
    assert "would grow from" in capsys.readouterr().err


def test_only_one_of_several_owners_counts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    assert trust.foreign_reason(path) == ""
    path.chmod(0o664)
    assert trust.foreign_reason(path) == ""
    path.chmod(0o666)
    assert trust.foreign_reason(path) == "can be written by other users"


def test_names_of_members_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "names.pt2"
    with zipfile.ZipFile(path, "w") as package:
        package.writestr("model/data/aotinductor/model/\x1b[2J.so", "x")
    data = path.read_bytes()
    at = data.rindex(b"PK\x01\x02")
    path.write_bytes(data[: at + 20] + (1 << 30).to_bytes(4, "little") + data[at + 24 :])
    assert main.run(["run", str(path)]) == 3
    error = capsys.readouterr().err
    assert "reaches past the end" in error
    assert "\x1b" not in error


def test_json_in_a_package_that_is_none(faulty_package: Path, tmp_path: Path) -> None:
    for member in ("aoti_debug_manifest.json", archive.SIGNATURE_MEMBER):
        path = tmp_path / "json.pt2"
        with zipfile.ZipFile(faulty_package) as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                new.writestr(name, "[" * 200_000 if name.endswith(member) else old.read(name))
        assert run(path, tmp_path, "--trust") == 3
