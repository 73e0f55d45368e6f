from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch
from torch.torch_version import TorchVersion

from aoti_debug.package.pt2 import archive
from aoti_debug.runs.run import cpp_loader, load_model
from tests import archives


def test_a_package_gets_an_empty_source_beside_its_library(tmp_path: Path) -> None:
    library = f"{archive.AOTINDUCTOR}one/c1.wrapper.so"
    path = archives.write(
        tmp_path / "m.pt2", {library: b"\x7fELF", f"{archive.AOTINDUCTOR}two/c2.wrapper.so": b"\x7fELF"}
    )
    before = path.read_bytes()
    (tmp_path / "work").mkdir()
    copy = load_model.with_empty_source(archive.inspect(path), "one", tmp_path / "work")
    copied, original = archive.inspect(copy), archive.inspect(path)
    assert set(copied.members) - set(original.members) == {f"{archive.AOTINDUCTOR}one/c1.wrapper.cpp"}
    assert copied.read(f"{archive.AOTINDUCTOR}one/c1.wrapper.cpp") == b""
    assert copied.read(library) == original.read(library)
    assert path.read_bytes() == before
    assert zipfile.ZipFile(copy).testzip() is None


LIBRARY = f"{archive.AOTINDUCTOR}model/c1.wrapper.so"
SOURCE = f"{archive.AOTINDUCTOR}model/c1.wrapper.cpp"
KERNEL = f"{archive.AOTINDUCTOR}model/kernel.cpp"
OTHER = f"{archive.AOTINDUCTOR}other/c1.cpp"


@pytest.mark.parametrize(
    ("version", "members", "loaded"),
    [
        ("2.11.0+cu130", (LIBRARY,), {LIBRARY, SOURCE}),
        ("2.12.1", (LIBRARY,), {LIBRARY, SOURCE}),
        ("2.13.0+cpu", (LIBRARY,), {LIBRARY}),
        ("2.15.0", (LIBRARY,), {LIBRARY}),
        ("2.11.0", (LIBRARY, SOURCE), {LIBRARY, SOURCE}),
        ("2.11.0", (LIBRARY, KERNEL), {LIBRARY, KERNEL}),
        ("2.11.0", (LIBRARY, OTHER), {LIBRARY, SOURCE, OTHER}),
    ],
)
def test_a_package_without_any_source_gets_one_where_torch_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, members: tuple[str, ...], loaded: set[str]
) -> None:
    path = archives.write(tmp_path / "m.pt2", dict.fromkeys(members, b"\x7fELF"))
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    paths: list[Path] = []

    def load(path: Path, model: str, _: bool) -> str:
        paths.append(path)
        assert loaded <= set(archive.inspect(path).members)
        assert (SOURCE in archive.inspect(path).members) == (SOURCE in loaded)
        return model

    monkeypatch.setattr(cpp_loader, "load", load)
    assert load_model.load(archive.inspect(path), "model", "cpu") == "model"
    assert (paths == [path]) == (loaded == set(members))
    assert all(used == path or not used.exists() for used in paths)
