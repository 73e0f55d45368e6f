from __future__ import annotations

import platform
from pathlib import Path

import pytest

from aoti_debug.repro.templates.cpp_build import CppCompiler, library_of

COMPILER = """#!/bin/sh
case "$1" in
  -print-prog-name=*) echo "${GOLD}" ;;
  *) echo "$@" >> "${0%/*}/called"; while [ "$1" != -o ]; do shift; done; echo > "$2" ;;
esac
"""


@pytest.fixture
def compiler(tmp_path: Path) -> CppCompiler:
    """A compiler that notes how it is called."""
    program = tmp_path / "g++"
    program.write_text(COMPILER)
    program.chmod(0o755)
    return CppCompiler(str(program), ("-O1",), (), ("-ltorch",))


def called(compiler: CppCompiler, folder: Path) -> list[str]:
    folder.mkdir()
    library_of(compiler, "void kernel() {}\n", "kernel", folder)
    return (Path(compiler.command).parent / "called").read_text().splitlines()[-1].split()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="gold is used on x86-64 only")
@pytest.mark.parametrize("found", ["ld.gold", "{tmp}/ld.gold"])
def test_gold_links_if_it_is_there(
    compiler: CppCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("GOLD", found.format(tmp=tmp_path))
    gold = tmp_path / "ld.gold"
    gold.write_text("#!/bin/sh\n")
    gold.chmod(0o755)
    assert called(compiler, tmp_path / "with")[-2:] == ["-ltorch", "-fuse-ld=gold"]


def test_the_usual_linker_links_without_gold(
    compiler: CppCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLD", "no-such-ld.gold")
    assert called(compiler, tmp_path / "without")[-1] == "-ltorch"
