"""The theoretical occupancy of a multiprocessor by a kernel, and the limits of multiprocessors."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from aoti_debug.base.frozen import dataclass

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
