from __future__ import annotations

import zipfile
from pathlib import Path

import archives

from aoti_debug.pt2 import archive
from aoti_debug.run import load_model


def test_a_package_gets_an_empty_source_beside_its_library(tmp_path: Path) -> None:
    library = f"{archive.AOTINDUCTOR}one/c1.wrapper.so"
    path = archives.write(
        tmp_path / "m.pt2", {library: b"\x7fELF", f"{archive.AOTINDUCTOR}two/c2.wrapper.so": b"\x7fELF"}
    )
    before = path.read_bytes()
    (tmp_path / "work").mkdir()
    copy = load_model.with_empty_source(archive.inspect(path), "one", tmp_path / "work")
    found, given = archive.inspect(copy), archive.inspect(path)
    assert set(found.members) - set(given.members) == {f"{archive.AOTINDUCTOR}one/c1.wrapper.cpp"}
    assert found.read(f"{archive.AOTINDUCTOR}one/c1.wrapper.cpp") == b""
    assert found.read(library) == given.read(library)
    assert path.read_bytes() == before
    assert zipfile.ZipFile(copy).testzip() is None
