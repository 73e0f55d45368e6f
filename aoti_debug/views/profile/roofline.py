"""The roofline of a machine: the work of launches, the least time that it takes there, and what bounds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.timeline import Launch

_LAUNCH_BOUND = 0.1  # of the roofline, below which a short launch is bound by what every launch costs
_SHORT = 20e-6  # seconds
_FLOAT32 = "float32"


@dataclass(frozen=True)
class Work:
    """The work of launches.

    Attributes:
        read, written: bytes of their distinct tensors, each once a launch; None if they are not known.
        flops: floating-point operations; None if they are not known.
        contracts: True if it multiplies matrices or convolves.
        dtype: of what it contracts, else "".
    """

    read: int | None = None
    written: int | None = None
    flops: int | None = None
    contracts: bool = False
    dtype: str = ""

    @property
    def bytes(self) -> int | None:
        """Bytes read and written; None if they are not known."""
        return None if self.read is None or self.written is None else self.read + self.written

    def __mul__(self, count: int) -> Work:
        def times(value: int | None) -> int | None:
            return None if value is None else value * count

        return Work(times(self.read), times(self.written), times(self.flops), self.contracts, self.dtype)


def moved(launch: Launch) -> tuple[int, int] | None:
    """Bytes that a launch reads and writes if it touches every element of its tensors once; None if it has none.

    A tensor that is passed twice counts once, one that is read and written in both. Of a tensor whose elements share
    memory (expanded), only that memory counts. Where it is not known which of both a launch does, it counts as read.
    """
    read = written = 0
    met = set()
    for argument in launch.args:
        layout = argument.layout
        if layout is None:
            continue
        tensor = argument.tensor
        place = (argument.name if tensor is None else tensor.data_ptr, layout)
        if place in met:
            continue
        met.add(place)
        size = min(layout.bytes, layout.extent_bytes)
        read += size if argument.has_data_before else 0
        written += size if argument.role in (Role.OUT, Role.INOUT) else 0
    return (read, written) if met else None


class Bound(str, Enum):
    """The limit that a launch comes up against."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LAUNCH = "launch"  # what every launch costs, whatever it does


@dataclass(frozen=True)
class Peaks:
    """The highest rates of a machine.

    Attributes:
        device: its name, with the number of threads of a CPU.
        bandwidth: bytes per second, read and written.
        flops: floating-point operations per second in a product of large matrices, by dtype.
    """

    device: str
    bandwidth: float
    flops: Mapping[str, float] = field(default_factory=dict)

    def flops_of(self, dtype: str) -> float:
        """Floating-point operations per second in a dtype; those in float32 where it was not measured."""
        return self.flops.get(dtype) or self.flops[_FLOAT32]


@dataclass(frozen=True)
class PeaksRequest:
    """The request to measure the peaks of this machine.

    Attributes:
        device: "cpu" or "cuda".
        reached: operations per second in float32 that a launch has reached; 0.0 if nothing is known.
    """

    device: str
    reached: float


@dataclass(frozen=True)
class RooflinePlacement:
    """The place of launches below the roofline.

    Attributes:
        least_seconds: the time that the machine needs for their work.
        share: that time in proportion to the measured one; above 1 if the tensors stay in caches.
        bound: what bounds them.
    """

    least_seconds: float
    share: float
    bound: Bound


def place(work: Work, seconds: float, count: int, peaks: Peaks) -> RooflinePlacement | None:
    """Places launches below the roofline.

    Args:
        work: of all of them.
        seconds: that they took, all together.
        count: how many there are.

    Returns:
        The place; None if neither bytes nor operations are known, or no time was measured.
    """
    if seconds <= 0 or (work.bytes is None and work.flops is None):
        return None
    moving = (work.bytes or 0) / peaks.bandwidth
    computing = (work.flops or 0) / peaks.flops_of(work.dtype)
    least = max(moving, computing)
    if least < _LAUNCH_BOUND * seconds and seconds / max(count, 1) < _SHORT:
        bound = Bound.LAUNCH
    else:
        bound = Bound.COMPUTE if computing > moving else Bound.MEMORY
    return RooflinePlacement(least, least / seconds, bound)
