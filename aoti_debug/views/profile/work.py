"""The work of a launch: the bytes that it has to move, and its floating-point operations."""

from __future__ import annotations

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.timeline import Launch


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
        read += 0 if argument.role is Role.OUT else size
        written += size if argument.role in (Role.OUT, Role.INOUT) else 0
    return (read, written) if met else None
