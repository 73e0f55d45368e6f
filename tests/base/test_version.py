from __future__ import annotations

from pathlib import Path

import pytest

import aoti_debug
from aoti_debug.app.cli import main
from aoti_debug.base import version
from tests.paths import ROOT


def test_what_the_build_has_written(tmp_path: Path) -> None:
    built = tmp_path / "version.txt"
    built.write_text("1.2.dev3+g0123456\n")
    assert version.read(built, "aoti-debug") == "1.2.dev3+g0123456"


def test_without_a_build_it_is_that_of_the_distribution(tmp_path: Path) -> None:
    from importlib import metadata

    assert version.read(tmp_path / "none.txt", "click") == metadata.version("click")
    assert version.read(tmp_path / "none.txt", "no-such-distribution") == version.UNKNOWN


def test_the_command_line_and_the_package_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"aoti-debug, version {aoti_debug.__version__}\n"


def test_a_build_writes_it_where_it_is_read() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert '\nversion_file = "aoti_debug/base/version.txt"\n' in text
    assert '\n"aoti_debug.base" = ["version.txt"]\n' in text
    assert "/aoti_debug/base/version.txt" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_hash_of_sources_is_that_of_their_names_and_texts(tmp_path: Path) -> None:
    package, linked = tmp_path / "package", tmp_path / "linked"
    for folder in (package / "inner", linked):
        folder.mkdir(parents=True)
    (package / "inner/a.py").write_text("a = 1\n")
    (linked / "b.cpp").write_text("int b;\n")
    (package / "shims").symlink_to(linked)
    (package / "notes.txt").write_text("1")
    before = version.source_hash(package)
    (package / "notes.txt").write_text("2")
    assert version.source_hash(package) == before
    hashes = {before}
    (linked / "b.cpp").write_text("long b;\n")
    hashes.add(version.source_hash(package))
    (package / "inner/a.py").rename(package / "inner/c.py")
    hashes.add(version.source_hash(package))
    assert len(hashes) == 3
