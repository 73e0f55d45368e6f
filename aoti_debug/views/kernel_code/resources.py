"""The registers and shared memory of a kernel, read from its binary: an ELF file for an NVIDIA GPU (a cubin)."""

from __future__ import annotations

import struct

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.base.native.elf import Library

_CUDA = 190  # e_machine
_NEW_ABI = 8  # the byte of e_ident behind the system's: flags hold the architecture elsewhere since then
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


def kernel_resources(binary: bytes, function: str) -> KernelResources | None:
    """The needs of a function in a binary.

    Returns:
        None if the binary is none for an NVIDIA GPU, is damaged, or does not hold the function.
    """
    try:
        with Library.in_memory(binary) as elf:
            registers = _registers(elf).get(function) if elf.machine == _CUDA else None
            shared = elf.section_size(f".nv.shared.{function}")
            architecture = elf.flags >> 8 & 0xFF if elf.abi_version >= _NEW_ABI else elf.flags & 0xFF
    except (struct.error, IndexError, ValueError):  # cut off, or none
        return None
    if registers is None:
        return None
    system = _SYSTEM_SHARED if architecture >= _SYSTEM_SINCE else 0
    return KernelResources(architecture, registers, max(shared - system, 0))


def _registers(elf: Library) -> dict[str, int]:
    """The registers of a thread, by function."""
    info, names = elf.section(".nv.info"), elf.symbol_names()
    found, at = {}, 0
    while at + 4 <= len(info):
        form, attribute, value = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _WITH_SIZE:
            continue
        if attribute == _REGISTERS:
            symbol, count = struct.unpack_from("<II", info, at)
            found[names[symbol]] = count
        at += value
    return found
