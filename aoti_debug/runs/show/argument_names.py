"""The tensors of a launch by name, in one line: "x, l_weight → buf0"."""

from __future__ import annotations

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.timeline import Argument, Launch
from aoti_debug.runs.show import terminal_cells

_ARROW = " → "
_COMMA = ", "
_MIN_NAME = 8  # cells of a shortened name; if that is still too long, names are left out and counted


@dataclass(frozen=True)
class ArgumentNames:
    """Names of the tensors that a launch reads and writes.

    Attributes:
        read: each once; "?" follows one whose role is unknown.
        written: each once.
    """

    read: tuple[str, ...]
    written: tuple[str, ...]

    def __str__(self) -> str:
        return _line(self.read, self.written)

    def fit(self, width: int) -> str:
        """At most `width` cells: long names lose their middles; if that is not enough, the last are counted."""
        read, written = len(self.read), len(self.written)
        while True:
            names = _first_names(self.read, read), _first_names(self.written, written)
            shortest = _MIN_NAME if max(read, written) > 1 else 1
            limit = _name_limit(names, width, shortest)
            if limit is not None or shortest == 1:
                return terminal_cells.shorten_middle(_shortened(names, limit or shortest), width)
            if read >= written:
                read -= 1
            else:
                written -= 1


def argument_names(launch: Launch) -> ArgumentNames:
    """The tensors that a launch reads and those that it writes."""
    tensors = [a for a in launch.args if _is_tensor(a)]
    read = [a.name + ("?" if a.role is Role.UNKNOWN else "") for a in tensors if a.role is not Role.OUT]
    written = [a.name for a in tensors if a.role in (Role.OUT, Role.INOUT)]
    return ArgumentNames(tuple(dict.fromkeys(read)), tuple(dict.fromkeys(written)))


def _is_tensor(argument: Argument) -> bool:
    return argument.tensor is not None or (argument.role is not Role.NONE and argument.written)


def _first_names(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    """The first names and the number of the others: "x", "y", "+3"."""
    return names if count == len(names) else (*names[:count], f"+{len(names) - count}")


def _name_limit(names: tuple[tuple[str, ...], tuple[str, ...]], width: int, shortest: int) -> int | None:
    """The longest name, of at least `shortest` cells, with which the line fits; None where even that is too long."""
    sizes = [terminal_cells.count(name) for side in names for name in side] or [0]
    room = width - (terminal_cells.count(_line(*names)) - sum(sizes))
    lengths = range(max(*sizes, shortest), shortest - 1, -1)
    return next((n for n in lengths if sum(min(size, n) for size in sizes) <= room), None)


def _shortened(names: tuple[tuple[str, ...], tuple[str, ...]], limit: int) -> str:
    return _line(*(tuple(terminal_cells.shorten_middle(name, limit) for name in side) for side in names))


def _line(read: tuple[str, ...], written: tuple[str, ...]) -> str:
    left, right = _COMMA.join(read), _COMMA.join(written)
    return f"{left}{_ARROW}{right}".strip() if right else left
