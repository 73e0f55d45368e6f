"""The registers and shared memory of a kernel, read from its binary: an ELF file for an NVIDIA GPU (a cubin)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_CUDA = 190  # e_machine
_NEW_ABI = 8  # the byte of e_ident behind the system's: flags hold the architecture elsewhere since then
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOLS = 2  # sh_type
_WITH_SIZE, _REGISTERS = 4, 0x2F  # the form and the name of an attribute in .nv.info
_SYSTEM_SHARED, _SYSTEM_SINCE = 1024, 90  # bytes that count as static from this architecture on


@dataclass(frozen=True)
class KernelResources:
    """The needs of a kernel, as it was compiled.

    Attributes:
        architecture: the compute capability times 10: 90.
        registers: of a thread.
        static_shared: bytes of shared memory of a block, without what a launch adds.
    """

    architecture: int
    registers: int
    static_shared: int


@dataclass(frozen=True)
class _Section:
    name: str
    type: int
    data: bytes
    size: int


def kernel_resources(binary: bytes, function: str) -> KernelResources | None:
    """The needs of a function in a binary.

    Returns:
        None if the binary is none for an NVIDIA GPU, is damaged, or does not hold the function.
    """
    try:
        if binary[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", binary, 18) != (_CUDA,):
            return None
        sections = list(_sections(binary))
        registers = _registers(sections).get(function)
        (flags,) = struct.unpack_from("<I", binary, 48)
    except (struct.error, IndexError, ValueError):  # cut off, or no name where one should be
        return None
    if registers is None:
        return None
    architecture = flags >> 8 & 0xFF if binary[8] >= _NEW_ABI else flags & 0xFF
    shared = sum(section.size for section in sections if section.name == f".nv.shared.{function}")
    system = _SYSTEM_SHARED if architecture >= _SYSTEM_SINCE else 0
    return KernelResources(architecture, registers, max(shared - system, 0))


def _sections(binary: bytes) -> Iterator[_Section]:
    (offset,) = struct.unpack_from("<Q", binary, 40)
    size, count, names = struct.unpack_from("<HHH", binary, 58)
    headers = [_SECTION.unpack_from(binary, offset + number * size) for number in range(count)]
    strings = headers[names][4]
    for name, type_, _, _, begin, length, *_ in headers:
        yield _Section(_text(binary, strings + name), type_, binary[begin : begin + length], length)


def _registers(sections: list[_Section]) -> dict[str, int]:
    """The registers of a thread, by function."""
    info = next((section.data for section in sections if section.name == ".nv.info"), b"")
    symbols = next((section.data for section in sections if section.type == _SYMBOLS), b"")
    strings = next((section.data for section in sections if section.name == ".strtab"), b"")
    found, at = {}, 0
    while at + 4 <= len(info):
        form, attribute, value = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _WITH_SIZE:
            continue
        if attribute == _REGISTERS:
            symbol, count = struct.unpack_from("<II", info, at)
            name, *_ = _SYMBOL.unpack_from(symbols, symbol * _SYMBOL.size)
            found[_text(strings, name)] = count
        at += value
    return found


def _text(data: bytes, begin: int) -> str:
    return data[begin : data.index(b"\0", begin)].decode()
