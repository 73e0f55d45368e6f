"""Reads the symbol tables, segments and sections of 64-bit ELF files, without external tools.

Also: the libraries that this process has loaded, and functions in them, without keeping them loaded.
"""

from __future__ import annotations

import _ctypes
import ctypes
import mmap
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

from aoti_debug.base.frozen import dataclass

_IDENTITY = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_GNU_HASH_HEADER = struct.Struct("<IIII")
_WORD = struct.Struct("<I")
_LOAD, _SYMTAB, _RELA, _DYNSYM, _GNU_HASH = 1, 2, 4, 11, 0x6FFFFFF6
_FUNCTION, _INDIRECT = 2, 10
_GLOBAL = 1
_NULL, _STRTAB, _NOTE, _NOBITS = 0, 3, 7, 8
_DEBUG_SECTION = re.compile(r"(\.rela?)?\.(nv_)?debug_")
_NOT_IN_FILE = (_NULL, _NOBITS)
_MAPPED_FILES = "/proc/self/maps"
_DELETED = " (deleted)"
_NO_CONTENT = frozenset({_NULL, _SYMTAB, _STRTAB, _NOTE, _NOBITS})


def length(file: IO[bytes], begin: int = 0) -> int:
    """The bytes of an ELF file that lies in a file from `begin` on, up to the end of the last part that it names.

    Raises:
        ValueError: it is not a 64-bit ELF file, or is cut off.
    """
    header, segments, sections = _tables(file, begin)
    ends = [_HEADER.size, header[5] + _SEGMENT.size * len(segments), header[6] + _SECTION.size * len(sections)]
    ends += [segment[2] + segment[5] for segment in segments]
    ends += [section[4] + section[5] for section in sections if section[1] not in _NOT_IN_FILE]
    return int(max(ends))


def place_of(file: IO[bytes], symbol: str, begin: int = 0) -> int | None:
    """The byte of a file at which an exported symbol of an ELF file lies that begins at `begin`; None without it.

    Raises:
        ValueError: it is not a 64-bit ELF file, or is cut off.
    """
    _, segments, sections = _tables(file, begin)
    for section in sections:
        if section[1] != _DYNSYM or section[6] >= len(sections):
            continue
        texts = sections[section[6]]
        names = _read(file, begin + texts[4], texts[5])
        entries = _read(file, begin + section[4], section[5] // _SYMBOL.size * _SYMBOL.size)
        for name, _, _, defined, address, _ in _SYMBOL.iter_unpack(entries):
            if defined and names[name : name + len(symbol) + 1] == symbol.encode() + b"\0":
                for segment in segments:
                    if segment[0] == _LOAD and segment[3] <= address < segment[3] + segment[5]:
                        return int(begin + segment[2] + address - segment[3])
    return None


_Numbers: TypeAlias = "tuple[Any, ...]"


def _tables(file: IO[bytes], begin: int) -> tuple[_Numbers, list[_Numbers], list[_Numbers]]:
    """The header, the segments and the sections of an ELF file that begins at `begin`.

    Raises:
        ValueError: it is not a 64-bit ELF file, or is cut off.
    """
    head = _read(file, begin, _HEADER.size)
    if head[: len(_IDENTITY)] != _IDENTITY:
        raise ValueError("no ELF file of 64 bits")
    header = _HEADER.unpack(head)
    segments = _read(file, begin + header[5], header[10] * _SEGMENT.size)
    sections = _read(file, begin + header[6], header[12] * _SECTION.size)
    return header, list(_SEGMENT.iter_unpack(segments)), list(_SECTION.iter_unpack(sections))


def _read(file: IO[bytes], at: int, size: int) -> bytes:
    try:
        file.seek(at)
        data = file.read(size)
    except (OSError, OverflowError):
        data = b""
    if len(data) < size:
        raise ValueError("it is cut off or damaged")
    return data


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int


class Library:
    """A 64-bit ELF file that is open for reading; a context manager."""

    def __init__(self, path: Path) -> None:
        """Maps the file and reads its headers.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a 64-bit ELF file.
        """
        with path.open("rb") as file:
            self._read(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), str(path))

    @classmethod
    def in_memory(cls, data: bytes) -> Library:
        """Reads the headers of a file whose bytes are these.

        Raises:
            ValueError: it is not a 64-bit ELF file.
        """
        if not data:
            raise ValueError("no ELF file of 64 bits")
        memory = mmap.mmap(-1, len(data))
        memory.write(data)
        library = cls.__new__(cls)
        library._read(memory, "the file")
        return library

    def _read(self, data: mmap.mmap, name: str) -> None:
        self._data = data
        try:
            self._segments, self._sections = self._headers()
        except (struct.error, IndexError, OverflowError) as error:
            self._data.close()
            raise ValueError(f"{name} is cut off or damaged") from error
        except ValueError:
            self._data.close()
            raise

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()

    @property
    def has_debug_lines(self) -> bool:
        """True if the file was compiled with -g."""
        return any(section.name == ".debug_line" for section in self._sections)

    def section(self, name: str) -> bytes:
        """Returns the bytes of a section; none if the file has no such section."""
        found = next((section for section in self._sections if section.name == name), None)
        return b"" if found is None else self._data[found.offset : found.offset + found.size]

    def section_size(self, name: str) -> int:
        """Returns the bytes that a section takes in memory, also if the file has none of them; 0 for no section."""
        return sum(section.size for section in self._sections if section.name == name)

    def symbol_names(self) -> list[str]:
        """Returns the names of the file's symbols, in the order of its symbol table."""
        return [name for name, *_ in self._symbols(_SYMTAB)]

    def address(self, file_offset: int) -> int | None:
        """Returns the link-time address of an offset in the file; None if no segment loads it."""
        for start, address, size in self._segments:
            if start <= file_offset < start + size:
                return address + file_offset - start
        return None

    def bytes_at(self, symbol: str, size: int) -> bytes:
        """Returns the first `size` bytes at an exported symbol.

        Raises:
            ValueError: the library exports no such symbol, or the file has no bytes for it.
        """
        start = self._file_offset(self.symbol_address(symbol))
        if start is None:
            raise ValueError(f"{symbol} is not in the file")
        return self._data[start : start + size]

    def symbol_address(self, symbol: str) -> int:
        """Returns the link-time address of an exported symbol.

        Raises:
            ValueError: the library exports no such symbol.
        """
        return self._exported(symbol)[0]

    def symbol_size(self, symbol: str) -> int:
        """Returns the size of an exported symbol in bytes; 0 if the library does not record it.

        Raises:
            ValueError: the library exports no such symbol.
        """
        return self._exported(symbol)[1]

    def _exported(self, symbol: str) -> tuple[int, int]:
        for name, _, section, value, size in self._symbols(_DYNSYM):
            if name == symbol and section != 0:
                return value, size
        raise ValueError(f"it exports no {symbol}")

    def undefined_symbols(self) -> frozenset[str]:
        """Returns the symbols that other libraries have to define; without weak ones, which may be missing."""
        return frozenset(
            name for name, info, section, _, _ in self._symbols(_DYNSYM) if section == 0 and info >> 4 == _GLOBAL
        )

    def exported_symbols(self) -> frozenset[str]:
        """Returns the symbols that the library defines for others."""
        return frozenset(name for name, info, section, _, _ in self._symbols(_DYNSYM) if section and info >> 4)

    def defined(self, symbols: Iterable[str]) -> frozenset[str]:
        """Returns those of these symbols that the library defines for others.

        They are looked up in its GNU hash table: torch's library has 74 000 symbols.

        Raises:
            ValueError: the table is damaged.
        """
        table, all_symbols = self._table(_GNU_HASH), self._table(_DYNSYM)
        if table is None or all_symbols is None:
            return self.exported_symbols() & frozenset(symbols)
        try:
            return frozenset(name for name in symbols if self._is_in_hash_table(name, table.offset, all_symbols))
        except (struct.error, ZeroDivisionError) as error:
            raise ValueError("its hash table of symbols is damaged") from error

    def _is_in_hash_table(self, wanted: str, table: int, symbols: _Section) -> bool:
        n_buckets, first, n_words, _ = _GNU_HASH_HEADER.unpack_from(self._data, table)
        buckets = table + _GNU_HASH_HEADER.size + 8 * n_words
        chains = buckets + 4 * (n_buckets - first)
        hash_ = _gnu_hash(wanted)
        index = self._word(buckets + 4 * (hash_ % n_buckets))
        while index >= first:
            found = self._word(chains + 4 * index)
            if found | 1 == hash_ | 1:  # the last bit ends a chain
                name = _SYMBOL.unpack_from(self._data, symbols.offset + index * _SYMBOL.size)[0]
                if self._text(self._sections[symbols.link].offset + name) == wanted:
                    return True
            if found & 1:
                break
            index += 1
        return False

    def relocated_symbols(self) -> frozenset[str]:
        """Returns the symbols that the dynamic linker resolves for the library, its own or those of others."""
        indices = {
            self._relocated(at)
            for section in self._sections
            if section.kind == _RELA
            for at in range(section.offset, section.offset + section.size, _RELOCATION.size)
        }
        return frozenset(name for i, (name, *_) in enumerate(self._symbols(_DYNSYM)) if i in indices and name)

    def defined_functions(self) -> frozenset[str]:
        """Returns the global functions that the file defines; those of a kernel binary are its kernels."""
        return frozenset(
            name
            for name, info, section, _, _ in self._symbols(_SYMTAB)
            if section and info >> 4 == _GLOBAL and info & 15 == _FUNCTION
        )

    def machine_code(self, prefix: str) -> Mapping[str, bytes]:
        """Returns the machine code of the exported functions whose names begin with `prefix`."""
        code_by_name: dict[str, bytes] = {}
        for name, info, section, value, size in self._symbols(_DYNSYM):
            start = self._file_offset(value)
            if name.startswith(prefix) and section != 0 and info & 15 == _FUNCTION and start is not None:
                code_by_name[name] = self._data[start : start + size]
        return code_by_name

    def content_without_debug_info(self) -> Iterator[bytes]:
        """Yields the bytes of the sections, in order, without debug information, symbols and notes.

        Before the bytes of each section comes a line with its kind and size.
        """
        for section in self._sections:
            if section.kind not in _NO_CONTENT and not _DEBUG_SECTION.match(section.name):
                yield f"{section.kind} {section.size}\n".encode()
                yield self._data[section.offset : section.offset + section.size]

    def _symbols(self, kind: int) -> Iterator[tuple[str, int, int, int, int]]:
        """Yields name, info, section, address and size of the symbols of a table."""
        table = self._table(kind)
        if table is None:
            return
        texts = self._sections[table.link]
        for at in range(table.offset, table.offset + table.size // _SYMBOL.size * _SYMBOL.size, _SYMBOL.size):
            name, info, _, section, value, size = _SYMBOL.unpack_from(self._data, at)
            yield self._text(texts.offset + name), info, section, value, size

    def _word(self, offset: int) -> int:
        return int(_WORD.unpack_from(self._data, offset)[0])

    def _relocated(self, relocation: int) -> int:
        """Returns the index of the symbol that a relocation refers to."""
        return int(_RELOCATION.unpack_from(self._data, relocation)[1]) >> 32

    def _file_offset(self, address: int) -> int | None:
        for start, base, size in self._segments:
            if base <= address < base + size:
                return start + address - base
        return None

    def function_names(self, addresses: Iterable[int]) -> Mapping[int, str]:
        """Returns the (mangled) names of the functions that link-time addresses lie in.

        Addresses of no known function are left out.
        """
        ordered = sorted(set(addresses))
        table = self._table(_SYMTAB) or self._table(_DYNSYM)
        if table is None or not ordered:
            return {}
        low, high = ordered[0], ordered[-1]
        names: dict[int, str] = {}
        texts = self._sections[table.link]
        symbols = memoryview(self._data)[table.offset : table.offset + table.size // _SYMBOL.size * _SYMBOL.size]
        try:
            for name, info, _, section, value, size in _SYMBOL.iter_unpack(symbols):
                if value > high or value + size <= low or section == 0 or info & 15 not in (_FUNCTION, _INDIRECT):
                    continue
                for address in ordered:
                    if value <= address < value + size:
                        names.setdefault(address, self._text(texts.offset + name))
        finally:
            symbols.release()
        return names

    def _headers(self) -> tuple[list[tuple[int, int, int]], list[_Section]]:
        if self._data[: len(_IDENTITY)] != _IDENTITY:
            raise ValueError("no ELF file of 64 bits")
        header = _HEADER.unpack_from(self._data)
        self.machine = int(header[2])  # a number of <elf.h>: 62 is x86-64
        self.abi_version, self.flags = int(header[0][8]), int(header[7])
        segments_at, sections_at = header[5], header[6]
        n_segments, n_sections, names_index = header[10], header[12], header[13]
        segments = [
            _SEGMENT.unpack_from(self._data, segments_at + index * _SEGMENT.size) for index in range(n_segments)
        ]
        raw = [_SECTION.unpack_from(self._data, sections_at + index * _SECTION.size) for index in range(n_sections)]
        names_at = raw[names_index][4] if raw else 0
        sections = [_Section(self._text(names_at + s[0]), s[1], s[4], s[5], s[6]) for s in raw]
        return [(s[2], s[3], s[5]) for s in segments if s[0] == _LOAD], sections

    def _table(self, kind: int) -> _Section | None:
        return next((section for section in self._sections if section.kind == kind), None)

    def _text(self, offset: int) -> str:
        return self._data[offset : self._data.find(b"\0", offset)].decode("utf-8", errors="replace")


def _gnu_hash(symbol: str) -> int:
    value = 5381
    for byte in symbol.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def loaded_libraries() -> set[str]:
    """The paths of the shared libraries in this process."""
    with open(_MAPPED_FILES, encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.rstrip("\n").partition("/")[2].removesuffix(_DELETED) for line in maps if ".so" in line}
    return {f"/{path}" for path in paths}


def loaded_function(name: str, libraries: Iterable[str]) -> Any:
    """The function of a name, without arguments, in one of some libraries; None if none of them exports it.

    It may be called as long as whoever has loaded the library does not unload it. It returns an int.
    """
    for path in libraries:
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        except OSError:  # it is no library, or not loaded any more
            continue
        try:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            continue
        finally:
            _ctypes.dlclose(library._handle)
        return ctypes.CFUNCTYPE(ctypes.c_uint32)(address or 0)
    return None
