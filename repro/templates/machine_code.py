"""Reads the instructions of a kernel out of a cubin, an ELF file."""

from __future__ import annotations

import struct

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_NO_BITS = 8  # SHT_NOBITS


def instructions(image: bytes, kernel: str) -> bytes:
    """The kernel's own section; not the tables of lines and symbols, which hold file names.

    Raises:
        ValueError: the image is no ELF file, or has no such kernel.
    """
    if image[:5] != b"\x7fELF\x02":
        raise ValueError("the machine code is not a 64-bit ELF file")
    *_, section_table, _, _, _, _, entry_size, count, names_at = _HEADER.unpack_from(image)
    sections = [_SECTION.unpack_from(image, section_table + i * entry_size) for i in range(count)]
    names = sections[names_at][4]
    for name_at, kind, _, _, offset, size, *_ in sections:
        begin = names + name_at
        if image[begin : image.index(b"\0", begin)] == f".text.{kernel}".encode() and kind != _NO_BITS:
            return image[offset : offset + size]
    raise ValueError(f"the machine code has no kernel {kernel}")
