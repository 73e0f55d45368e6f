"""Core files of a process: threads, signal, files, memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.native.core_file import CoreFile, is_core
from tests.core_files import Mapped, Memory, SmallCore

PAGE = 4096


def opened(folder: Path, core: SmallCore) -> CoreFile:
    return CoreFile(core.write(folder / "core"))


def test_threads_signal_and_command_line(tmp_path: Path) -> None:
    with opened(tmp_path, SmallCore(threads=(7, 8), address=0xDEAD)) as core:
        assert core.threads == (7, 8)
        assert (core.signal.name, core.signal.address, core.signal.is_of_processor) == ("SIGSEGV", 0xDEAD, True)
        assert core.arguments == "./server model.pt2"


@pytest.mark.parametrize(
    ("core", "name", "address", "is_of_processor"),
    [
        (SmallCore(code=128, address=0), "SIGSEGV", None, True),  # an address that no address is: the kernel tells none
        (SmallCore(signal=6, code=-6, address=5), "SIGABRT", None, False),
        (SmallCore(signal=11, code=0, address=5), "SIGSEGV", None, False),  # sent by a process
        (SmallCore(signal=8, address=0x400000), "SIGFPE", None, True),  # the address is of the instruction
        (SmallCore(signal=7, address=0x30), "SIGBUS", 0x30, True),
        (SmallCore(signal=0, code=0, address=0), "", None, False),
    ],
)
def test_only_faults_of_memory_have_an_address(
    tmp_path: Path, core: SmallCore, name: str, address: int | None, is_of_processor: bool
) -> None:
    with opened(tmp_path, core) as read:
        found = read.signal
    assert (found.name, found.address, found.is_of_processor) == (name, address, is_of_processor)


def test_memory_is_read_across_parts_and_from_files(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"a" * PAGE + b"b" * PAGE + b"c" * PAGE)
    mapped = (Mapped(0x10000, 0x13000, 0, str(library)),)
    memory = (Memory(0x10000, b"a" * PAGE), Memory(0x12000, b"changed".ljust(PAGE, b"!")), Memory(0x13000, b"xyz"))
    with opened(tmp_path, SmallCore(memory=memory, mapped=mapped)) as core:
        assert core.read(0x10FFF, 2) == b"ab"  # the second page is only in the file
        assert core.read(0x11FFE, 4) == b"bbch"  # the process had changed the third
        assert core.read(0x12FFF, 3) == b"!xy"
        assert core.read(0x13002, 2) is None  # nobody has what follows
        assert core.files == (str(library),)
        assert core.is_of(str(library), library)


def test_a_file_that_was_changed_since_is_not_read(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"z" * 2 * PAGE)
    mapped = (Mapped(0x10000, 0x12000, 0, str(library)),)
    with opened(tmp_path, SmallCore(memory=(Memory(0x10000, b"a" * PAGE),), mapped=mapped)) as core:
        assert core.is_of(str(library), library) is False
        assert core.read(0x11000, 1) is None


def test_another_file_can_take_the_place_of_one_that_is_gone(tmp_path: Path) -> None:
    kept = tmp_path / "kept.so"
    kept.write_bytes(b"a" * PAGE + b"b" * PAGE)
    mapped = (Mapped(0x10000, 0x12000, 0, "/gone/library.so"),)
    with opened(tmp_path, SmallCore(memory=(Memory(0x10000, b"a" * PAGE),), mapped=mapped)) as core:
        assert core.read(0x11000, 1) is None
        core.replacements["/gone/library.so"] = kept
        core._same.clear()
        assert core.read(0x11000, 1) == b"b"


def test_the_program_is_what_the_entry_lies_in(tmp_path: Path) -> None:
    mapped = (Mapped(0x1000, 0x2000, 0, "/lib/libc.so.6"), Mapped(0x5000, 0x6000, 0x1000, "/bin/server (deleted)"))
    with opened(tmp_path, SmallCore(mapped=mapped, entry=0x5010)) as core:
        assert core.executable == Path("/bin/server")


def test_what_is_no_core_of_a_process_is_refused_in_words(tmp_path: Path) -> None:
    whole = SmallCore(memory=(Memory(0x1000, bytes(PAGE)),)).content()
    cases = {
        "cut": (whole[:-100], "is cut off or damaged"),
        "half": (whole[:100], "is cut off or damaged"),
    }
    for name, (content, words) in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert is_core(path)
        with pytest.raises(ArtifactError, match=words) as raised:
            CoreFile(path)
        assert raised.value.hint
    for name, content in {"zip": b"PK\3\4" * 100, "program": whole[:16] + b"\2" + whole[17:], "empty": b""}.items():
        (tmp_path / name).write_bytes(content)
        assert not is_core(tmp_path / name)
    assert not is_core(tmp_path / "none")
