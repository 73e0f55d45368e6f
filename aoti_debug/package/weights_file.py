"""The files that a package was built from or has its weights in, and what of it equals them.

A package that takes its weights from the exported program, instead of holding a copy of them, is smaller by their size,
and is loaded without unpacking them: they are mapped from the program's file. It can be run on this machine only, by
this tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from aoti_debug.base.frozen import dataclass

MEMBER = "aoti_debug_weights.pt"  # the constants that the program's file does not hold, by name
REPLACED = "aoti_debug_replaced_weights.pt"  # the member with what a model is given after it was loaded
REFERRED = 1 << 20  # bytes of a weight; runs refer to larger ones (kReferredBytes of weights_file.h)
LARGE = 256 << 20  # bytes of weights; above it, copies of them are avoided


class WeightsPlace(str, Enum):
    """The places that the weights of a package can have: in it, or in the file of its program."""

    INSIDE = "inside"
    BY_REFERENCE = "by-reference"


@dataclass(frozen=True)
class WeightsFile:
    """The file of an exported program or of a compiled package that holds weights of a package.

    Attributes:
        path: absolute.
        size: in bytes.
        sha256: of the archive's directory, which has the name, size, position and CRC-32 of each member.
        names: the attribute of the program ("linear.weight"), by the name of the constant in the package.
    """

    path: str
    size: int
    sha256: str
    names: Mapping[str, str]


@dataclass(frozen=True)
class KernelMatch:
    """The comparison of the kernels with those of the compiled package that this one was built from."""

    kernels: int  # their number in that package: exported functions of its library, and kernel binaries
    different: tuple[str, ...]  # those that are missing here or differ, sorted

    def __str__(self) -> str:
        return f"{self.kernels - len(self.different)} of {self.kernels} kernels identical to the original"


@dataclass(frozen=True)
class PackedWeights:
    """The large weights that a package holds, and where they lie among all weights, which follow each other in it.

    Attributes:
        begins: the byte at which the memory of each begins, by the name of the constant.
        sizes: the bytes of each.
        size: of all weights, in bytes.
    """

    begins: Mapping[str, int]
    sizes: Mapping[str, int]
    size: int
