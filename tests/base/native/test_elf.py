from __future__ import annotations

import _ctypes
import ctypes
import io
import shutil
import subprocess
from pathlib import Path

import pytest

from aoti_debug.base.native import elf
from aoti_debug.base.native.elf import Library

SOURCE = """
static __attribute__((noinline)) int hidden(int x) { return x * 3; }
int shown(int x) { return hidden(x) + 1; }
"""

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")


def compiled(folder: Path, *options: str) -> Path:
    (folder / "library.c").write_text(SOURCE)
    path = folder / "library.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", *options, str(folder / "library.c"), "-o", str(path)], check=True)
    return path


def address_of(path: Path, name: str) -> int:
    """The link-time address of a function, as it is loaded."""
    function = ctypes.cast(getattr(ctypes.CDLL(str(path)), name), ctypes.c_void_p).value
    assert function is not None
    base = next(
        int(line.partition("-")[0], 16)
        for line in Path("/proc/self/maps").read_text().splitlines()
        if str(path) in line
    )
    return function - base


def test_the_function_at_an_address(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    shown = address_of(path, "shown")
    with Library(path) as library:
        assert library.function_names([shown, shown + 1, 0]) == {shown: "shown", shown + 1: "shown"}


def test_relocated_symbols_are_those_that_the_dynamic_linker_resolves(tmp_path: Path) -> None:
    (tmp_path / "library.c").write_text(
        "int other(int); int own(int x) { return x; } int f(int x) { return other(own(x)); }"
    )
    for options, called in ((("-O0",), {"other", "own"}), (("-O0", "-Wl,-Bsymbolic"), {"other"})):
        path = tmp_path / "called.so"
        source = str(tmp_path / "library.c")
        subprocess.run(["gcc", "-shared", "-fPIC", *options, source, "-o", str(path)], check=True)
        with Library(path) as library:
            assert library.relocated_symbols() & {"other", "own", "f"} == called
            assert library.defined_functions() >= {"own", "f"}


@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_symbols_that_a_library_defines_for_others(tmp_path: Path, style: str) -> None:
    source = "int other(void);\n" + "".join(f"int f{n}(void) {{ return other(); }}\n" for n in range(300))
    (tmp_path / "library.c").write_text(
        f"{source}static int own(void) {{ return 1; }}\nint g(void) {{ return own(); }}"
    )
    path = tmp_path / "library.so"
    command = ["gcc", "-shared", "-fPIC", f"-Wl,--hash-style={style}", str(tmp_path / "library.c"), "-o", str(path)]
    subprocess.run(command, check=True)
    with Library(path) as library:
        exported = library.exported_symbols()
        assert exported >= {"f0", "f299", "g"}
        assert library.defined([*exported, "other", "own", "f300", ""]) == exported


def test_a_damaged_hash_table(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    with Library(path) as library:
        table = library.section(".gnu.hash")
        assert library.defined(["shown"]) == {"shown"}
    for damage in (b"\0" * len(table), b"\1\0\0\0" + b"\0" * 12 + b"\2" * (len(table) - 16)):
        (tmp_path / "damaged.so").write_bytes(path.read_bytes().replace(table, damage))
        with (
            Library(tmp_path / "damaged.so") as library,
            pytest.raises(ValueError, match="hash table of symbols is damaged"),
        ):
            library.defined(["shown"])


def test_functions_that_are_not_exported_have_names_until_they_are_stripped(tmp_path: Path) -> None:
    for options, names in (((), {"shown", "hidden"}), (("-s",), {"shown"})):
        path = compiled(tmp_path, *options)
        with Library(path) as library:
            assert set(library.function_names(range(0x1000, 0x1200)).values()) - {"_init", "_fini"} >= names
            assert ("hidden" in library.function_names(range(0x1000, 0x1200)).values()) == ("hidden" in names)


def test_the_address_of_a_file_offset(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    with Library(path) as library:
        assert library.address(0x1000) == 0x1000
        assert library.address(path.stat().st_size + 4096) is None


def test_debug_information(tmp_path: Path) -> None:
    with Library(compiled(tmp_path)) as library:
        assert not library.has_debug_lines
    with Library(compiled(tmp_path, "-g")) as library:
        assert library.has_debug_lines


@pytest.mark.parametrize("data", [b"no library", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 58])
def test_files_that_are_not_libraries(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.so").write_bytes(data)
    with pytest.raises(ValueError, match=r"x\.so|no ELF file"):
        Library(tmp_path / "x.so")


def test_the_length_of_a_library_with_something_appended(tmp_path: Path) -> None:
    path = compiled(tmp_path, "-g")
    data = path.read_bytes()
    assert elf.length(io.BytesIO(data + bytes(1000))) == len(data)
    assert elf.length(io.BytesIO(b"before" + data), 6) == len(data)


def test_where_an_exported_symbol_lies_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "more.h").write_text(
        'char some_bytes[] = "here they are"; extern int undefined; int *user(void) { return &undefined; }'
    )
    data = compiled(tmp_path, "-include", str(tmp_path / "more.h")).read_bytes()
    file = io.BytesIO(b"before" + data + bytes(1000))
    place = elf.place_of(file, "some_bytes", 6)
    assert place is not None
    assert file.getvalue()[place : place + 14] == b"here they are\0"
    assert [elf.place_of(file, name, 6) for name in ("some", "undefined", "none")] == [None] * 3
    with pytest.raises(ValueError, match="no ELF file"):
        elf.place_of(file, "some_bytes")


@pytest.mark.parametrize("kept", [0, 3, 63, 1000])
def test_a_library_that_is_cut_off_has_no_length(tmp_path: Path, kept: int) -> None:
    data = compiled(tmp_path).read_bytes()
    with pytest.raises(ValueError, match="cut off"):
        elf.length(io.BytesIO(data[:kept]))
    no_end = data[:40] + b"\xff" * 8 + data[48:]  # where its table of sections lies
    with pytest.raises(ValueError, match="cut off"):
        elf.length(io.BytesIO(no_end))
    with pytest.raises(ValueError, match="no ELF file"):
        elf.length(io.BytesIO(bytes(100)))


def test_a_function_of_a_library_that_was_loaded(tmp_path: Path) -> None:
    shutil.copy(Path(_ctypes.__file__), tmp_path / "copy.so")
    before = elf.loaded_libraries()
    library = ctypes.CDLL(str(tmp_path / "copy.so"))
    (tmp_path / "copy.so").unlink()
    new = elf.loaded_libraries() - before
    assert new == {str(tmp_path / "copy.so")}
    assert elf.loaded_function("no_such_function", new) is None
    found = elf.loaded_function("PyInit__ctypes", new)
    assert found is not None
    address = ctypes.cast(found, ctypes.c_void_p).value
    assert address == ctypes.cast(library.PyInit__ctypes, ctypes.c_void_p).value
    _ctypes.dlclose(library._handle)
    assert not elf.loaded_libraries() & new
    assert elf.loaded_function("PyInit__ctypes", new) is None
