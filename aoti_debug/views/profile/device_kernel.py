"""The device kernels of launches: registers, shared memory, configuration, and what a multiprocessor holds of one."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import Enum

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.native.elf import Library
from aoti_debug.package.manifest import ConfigOrigin, Kernel
from aoti_debug.repro.recorded_launch import kernel_binary
from aoti_debug.runs.rundir.launch import Grid, Launch
from aoti_debug.runs.rundir.run_directory import RunDir

_THREADS = 32  # of a warp
_KIB = 1024
_REGISTER_UNIT = 256  # registers of a warp are allocated in such units
_WARP_UNIT = 4  # the warps that registers suffice for are a multiple of this: one for each of four schedulers
_AMPERE = 80  # from here on shared memory is allocated in smaller units, and the system takes some of each block
_SHARED_UNIT, _OLD_SHARED_UNIT = 128, 256  # bytes
_SYSTEM_SHARED = 1024  # bytes


@dataclass(frozen=True)
class Multiprocessor:
    """The limits of a multiprocessor.

    Attributes:
        shared: bytes of shared memory.
    """

    warps: int
    blocks: int
    shared: int
    registers: int = 65536


# "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide, by 10 times the capability
MULTIPROCESSORS: Mapping[int, Multiprocessor] = {
    70: Multiprocessor(64, 32, 96 * _KIB),
    75: Multiprocessor(32, 16, 64 * _KIB),
    80: Multiprocessor(64, 32, 164 * _KIB),
    86: Multiprocessor(48, 16, 100 * _KIB),
    87: Multiprocessor(48, 16, 164 * _KIB),
    89: Multiprocessor(48, 24, 100 * _KIB),
    90: Multiprocessor(64, 32, 228 * _KIB),
    100: Multiprocessor(64, 32, 228 * _KIB),
    120: Multiprocessor(48, 24, 100 * _KIB),
}


class Limit(str, Enum):
    """The resource that no more blocks fit into."""

    WARPS = "warps"
    BLOCKS = "blocks"
    REGISTERS = "registers"
    SHARED = "shared memory"


@dataclass(frozen=True)
class Occupancy:
    """The warps that a multiprocessor can hold.

    Attributes:
        warps: of one kernel at a time.
        most: of any.
        limit: what keeps it from holding more blocks.
    """

    warps: int
    most: int
    limit: Limit

    @property
    def share(self) -> float:
        """Warps in proportion to the most."""
        return self.warps / self.most


def occupancy(architecture: int, warps: int, registers: int, shared: int) -> Occupancy | None:
    """The theoretical occupancy of a kernel, as `cuda_occupancy.h` of the CUDA toolkit computes it.

    Args:
        architecture: 10 times the compute capability.
        warps: of a block.
        registers: of a thread.
        shared: bytes of shared memory of a block, of the binary and of the launch.

    Returns:
        None if the architecture's limits are not known here, or the block has no warps.
    """
    limits = MULTIPROCESSORS.get(architecture)
    if limits is None or warps < 1:
        return None
    unit, system = (_SHARED_UNIT, _SYSTEM_SHARED) if architecture >= _AMPERE else (_OLD_SHARED_UNIT, 0)
    taken = shared + system
    fitting = {Limit.WARPS: limits.warps // warps, Limit.BLOCKS: limits.blocks}
    if registers:
        warps_of_registers = limits.registers // _rounded(registers * _THREADS, _REGISTER_UNIT)
        fitting[Limit.REGISTERS] = warps_of_registers // _WARP_UNIT * _WARP_UNIT // warps
    if taken:
        fitting[Limit.SHARED] = limits.shared // _rounded(taken, unit)
    limit = min(fitting, key=fitting.__getitem__)
    return Occupancy(fitting[limit] * warps, limits.warps, limit)


def _rounded(number: int, unit: int) -> int:
    return -(-number // unit) * unit


_CUDA = 190  # e_machine
_NEW_ABI = 8  # the byte of e_ident behind the system's: flags hold the architecture elsewhere since then
_WITH_SIZE, _REGISTERS = 4, 0x2F  # the form and the name of an attribute in .nv.info
_STATIC_SHARED, _SYSTEM_SINCE = 1024, 90  # bytes that count as static from this architecture on


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
    system = _STATIC_SHARED if architecture >= _SYSTEM_SINCE else 0
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


@dataclass(frozen=True)
class DeviceKernel:
    """A Triton kernel as it was launched.

    Attributes:
        warps: of a block.
        shared: bytes of shared memory of a block.
        config: the block sizes that autotuning chose, as far as the package records them: ("XBLOCK", "128").
        registers: of a thread; None if the binary is not available.
        occupancy: None if that or the GPU's limits are not known.
    """

    name: str
    warps: int
    shared: int
    config: tuple[tuple[str, str], ...]
    registers: int | None = None
    occupancy: Occupancy | None = None


def device_kernels(run: RunDir, launches: Iterable[Launch]) -> dict[int, DeviceKernel]:
    """The device kernel of each site that launches one, by the site's id."""
    kernels = {kernel.name: kernel for kernel in run.manifest.kernels if kernel.language == "triton"}
    found: dict[int, DeviceKernel] = {}
    for launch in launches:
        for grid in launch.grids:
            if grid.kernel in kernels and launch.site.id not in found:
                found[launch.site.id] = _device_kernel(run, kernels[grid.kernel], grid)
    return found


def _device_kernel(run: RunDir, kernel: Kernel, grid: Grid) -> DeviceKernel:
    config = tuple((name, value) for name, value in kernel.config if kernel.origin(name) is ConfigOrigin.RECORDED)
    binary, _ = kernel_binary(run, kernel)
    resources = None if binary is None else kernel_resources(binary, kernel.mangled or kernel.name)
    if resources is None:
        return DeviceKernel(kernel.name, grid.num_warps, grid.shared_bytes, config)
    shared = resources.static_shared + grid.shared_bytes
    held = occupancy(resources.architecture, grid.num_warps, resources.registers, shared)
    return DeviceKernel(kernel.name, grid.num_warps, shared, config, resources.registers, held)
