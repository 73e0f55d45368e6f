from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from aoti_debug.repro.templates.cpp_build import CppCompiler, library_of

COMPILER = """#!/bin/sh
case "$1 $*" in
  -print-prog-name=*) echo "${GOLD}" ;;
  *$REFUSED*) echo "$@" >> "${0%/*}/called"; exit 1 ;;
  *) echo "$@" >> "${0%/*}/called"; while [ "$1" != -o ]; do shift; done; echo > "$2" ;;
esac
"""
ALONE, TORCH, GOLD = "-Wl,-z,defs", "-ltorch", "-fuse-ld=gold"


@pytest.fixture
def compiler(tmp_path: Path) -> CppCompiler:
    """A compiler that notes how it is called."""
    program = tmp_path / "g++"
    program.write_text(COMPILER)
    program.chmod(0o755)
    return CppCompiler(str(program), ("-O1",), (), ("-ltorch",))


@pytest.fixture
def gold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A linker that the compiler finds."""
    linker = tmp_path / "ld.gold"
    linker.write_text("#!/bin/sh\n")
    linker.chmod(0o755)
    monkeypatch.setenv("GOLD", str(linker))
    return linker


@pytest.fixture(autouse=True)
def nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLD", "no-such-ld.gold")
    monkeypatch.setenv("REFUSED", "no such word")


def linked(compiler: CppCompiler, folder: Path, *flags: str) -> list[list[str]]:
    """The words behind the name of the library of each attempt to link."""
    folder.mkdir()
    library = library_of(compiler, "void kernel() {}\n", "kernel", folder, flags)
    assert {path.suffix for path in library.parent.iterdir()} == {".cpp", ".so"}
    lines = [line.split() for line in (Path(compiler.command).parent / "called").read_text().splitlines()]
    assert lines[0][0] == "-c"
    assert all("-shared" in line for line in lines[1:])
    return [line[line.index("-o") + 2 :] for line in lines[1:]]


needs_gold = pytest.mark.skipif(platform.machine() != "x86_64", reason="gold is used on x86-64 only")


@needs_gold
@pytest.mark.parametrize("found", ["ld.gold", "{tmp}/ld.gold"])
def test_gold_links_if_it_is_there(
    compiler: CppCompiler, gold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("GOLD", found.format(tmp=tmp_path))
    assert linked(compiler, tmp_path / "with") == [[ALONE, GOLD]]


def test_the_usual_linker_links_without_gold(compiler: CppCompiler, tmp_path: Path) -> None:
    assert linked(compiler, tmp_path / "without") == [[ALONE]]


@needs_gold
@pytest.mark.parametrize(
    ("refused", "attempts"),
    [
        (ALONE, [[ALONE, GOLD], [TORCH, GOLD]]),
        (GOLD, [[ALONE, GOLD], [TORCH, GOLD], [TORCH]]),
    ],
)
def test_what_does_not_link_is_linked_otherwise(
    compiler: CppCompiler,
    gold: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refused: str,
    attempts: list[list[str]],
) -> None:
    monkeypatch.setenv("REFUSED", refused)
    assert linked(compiler, tmp_path / "otherwise") == attempts


def test_nothing_is_tried_twice(compiler: CppCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUSED", ALONE)
    assert linked(compiler, tmp_path / "twice") == [[ALONE], [TORCH]]
    monkeypatch.setenv("REFUSED", "-shared")
    with pytest.raises(SystemExit):
        linked(compiler, tmp_path / "fails")
    called = (tmp_path / "called").read_text().splitlines()
    assert len(called) == len(set(called))


def test_a_sanitizer_is_linked_with_everything(compiler: CppCompiler, gold: Path, tmp_path: Path) -> None:
    assert linked(compiler, tmp_path / "sanitized", "-fsanitize=address") == [[TORCH]]


@pytest.mark.parametrize(("refused", "message"), [("-c ", "does not compile"), ("-shared", "cannot be linked")])
def test_what_fails(
    compiler: CppCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str, message: str
) -> None:
    monkeypatch.setenv("REFUSED", refused)
    with pytest.raises(SystemExit, match=f"^the kernel {message}:\n{re.escape(compiler.command)} "):
        linked(compiler, tmp_path / "fails")
    assert [path.suffix for path in (tmp_path / "fails/build").iterdir()] == [".cpp"]
