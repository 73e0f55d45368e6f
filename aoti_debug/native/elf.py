"""The functions of an ELF library, found by address: symbol tables are read here, without any tool."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_IDENTITY = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_LOAD, _SYMTAB, _RELA, _DYNSYM = 1, 2, 4, 11
_FUNCTION, _INDIRECT = 2, 10
_GLOBAL = 1
_NULL, _STRTAB, _NOTE, _NOBITS = 0, 3, 7, 8
_DEBUGGING = re.compile(r"(\.rela?)?\.(nv_)?debug_")
_NO_CONTENT = frozenset({_NULL, _SYMTAB, _STRTAB, _NOTE, _NOBITS})


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int


class Library:
    """An ELF file that is open for reading; a context manager."""

    def __init__(self, path: Path) -> None:
        """Raises:
        OSError: it cannot be read.
        ValueError: it is no ELF file of 64 bits.
        """
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self._segments, self._sections = self._headers()
        except (struct.error, IndexError, OverflowError) as error:
            self._data.close()
            raise ValueError(f"{path} is cut off or damaged") from error
        except ValueError:
            self._data.close()
            raise

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()

    @property
    def has_lines(self) -> bool:
        """Whether it was compiled with -g."""
        return any(section.name == ".debug_line" for section in self._sections)

    def address(self, file_offset: int) -> int | None:
        """The link-time address of a byte of the file; None where it is not loaded."""
        for start, address, size in self._segments:
            if start <= file_offset < start + size:
                return address + file_offset - start
        return None

    def bytes_at(self, symbol: str, size: int) -> bytes:
        """The first bytes of what an exported symbol names.

        Raises:
            ValueError: the library exports no such symbol, or it is not in the file.
        """
        start = self._file_offset(self.exported(symbol))
        if start is None:
            raise ValueError(f"{symbol} is not in the file")
        return self._data[start : start + size]

    def exported(self, symbol: str) -> int:
        """The link-time address of what an exported symbol names.

        Raises:
            ValueError: the library exports no such symbol.
        """
        return self._exported(symbol)[0]

    def size_of(self, symbol: str) -> int:
        """The bytes of what an exported symbol names; 0 where the library does not say.

        Raises:
            ValueError: the library exports no such symbol.
        """
        return self._exported(symbol)[1]

    def _exported(self, symbol: str) -> tuple[int, int]:
        for name, _, section, value, size in self._symbols(_DYNSYM):
            if name == symbol and section != 0:
                return value, size
        raise ValueError(f"it exports no {symbol}")

    def needed(self) -> frozenset[str]:
        """The symbols that the library takes from others; without those that may be missing (weak ones)."""
        return frozenset(
            name for name, info, section, _, _ in self._symbols(_DYNSYM) if section == 0 and info >> 4 == _GLOBAL
        )

    def exports(self) -> frozenset[str]:
        """The symbols that the library has for others."""
        return frozenset(name for name, info, section, _, _ in self._symbols(_DYNSYM) if section and info >> 4)

    def called(self) -> frozenset[str]:
        """The symbols that the dynamic linker resolves for the library, its own or those of others."""
        wanted = {
            self._relocated(at)
            for section in self._sections
            if section.kind == _RELA
            for at in range(section.offset, section.offset + section.size, _RELOCATION.size)
        }
        return frozenset(name for i, (name, *_) in enumerate(self._symbols(_DYNSYM)) if i in wanted and name)

    def defined_functions(self) -> frozenset[str]:
        """The functions that the file defines for others; those of a kernel binary are its kernels."""
        return frozenset(
            name
            for name, info, section, _, _ in self._symbols(_SYMTAB)
            if section and info >> 4 == _GLOBAL and info & 15 == _FUNCTION
        )

    def code(self, prefix: str) -> Mapping[str, bytes]:
        """The machine code of the exported functions whose names begin with `prefix`."""
        found: dict[str, bytes] = {}
        for name, info, section, value, size in self._symbols(_DYNSYM):
            start = self._file_offset(value)
            if name.startswith(prefix) and section != 0 and info & 15 == _FUNCTION and start is not None:
                found[name] = self._data[start : start + size]
        return found

    def without_debugging(self) -> Iterator[bytes]:
        """What the file's sections hold, in order, but for what debuggers, profilers and linkers are told: lines, names
        and the tools that made the file. Before each section's bytes its kind and size."""
        for section in self._sections:
            if section.kind not in _NO_CONTENT and not _DEBUGGING.match(section.name):
                yield f"{section.kind} {section.size}\n".encode()
                yield self._data[section.offset : section.offset + section.size]

    def _symbols(self, kind: int) -> Iterator[tuple[str, int, int, int, int]]:
        """Name, info, section, address and size of the symbols of a table."""
        table = self._table(kind)
        if table is None:
            return
        texts = self._sections[table.link]
        for at in range(table.offset, table.offset + table.size // _SYMBOL.size * _SYMBOL.size, _SYMBOL.size):
            name, info, _, section, value, size = _SYMBOL.unpack_from(self._data, at)
            yield self._text(texts.offset + name), info, section, value, size

    def _relocated(self, relocation: int) -> int:
        """The index of the symbol that a relocation is about."""
        return int(_RELOCATION.unpack_from(self._data, relocation)[1]) >> 32

    def _file_offset(self, address: int) -> int | None:
        for start, base, size in self._segments:
            if base <= address < base + size:
                return start + address - base
        return None

    def functions(self, addresses: Iterable[int]) -> Mapping[int, str]:
        """The (mangled) names of the functions that link-time addresses lie in; those of no known function are left
        out."""
        wanted = sorted(set(addresses))
        table = self._table(_SYMTAB) or self._table(_DYNSYM)
        if table is None or not wanted:
            return {}
        low, high = wanted[0], wanted[-1]
        names: dict[int, str] = {}
        texts = self._sections[table.link]
        symbols = memoryview(self._data)[table.offset : table.offset + table.size // _SYMBOL.size * _SYMBOL.size]
        try:
            for name, info, _, section, value, size in _SYMBOL.iter_unpack(symbols):
                if value > high or value + size <= low or section == 0 or info & 15 not in (_FUNCTION, _INDIRECT):
                    continue
                for address in wanted:
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
