"""The time of a command as text: one line for each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from aoti_debug.base import wording
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.base.machine.progress import timings

START = "start aoti-debug"
OTHER = "other"
_SHORTEST_OTHER = 0.001  # seconds


@dataclass(frozen=True)
class TimedPhase:
    """A phase of a command.

    Attributes:
        parts: seconds of its own phases, in order.
        began: seconds from the beginning of the command, where phases may go on side by side.
    """

    name: str
    seconds: float
    parts: Mapping[str, float] = field(default_factory=dict)
    began: float | None = None


def timing_lines(phases: Sequence[TimedPhase], total: float) -> list[str]:
    """The phases with their seconds and share, the time between them, and the total.

    Args:
        total: seconds of the whole command.
    """
    rest = total - _covered(phases)
    rows = [("time", "", "")]
    for phase in [*phases, *([TimedPhase(OTHER, rest)] if rest > _SHORTEST_OTHER else [])]:
        rows.append(_row(f"  {phase.name}", phase.seconds, total))
        rows += [_row(f"    {name}", seconds, total) for name, seconds in phase.parts.items()]
    rows.append(_row("  in all", total, total))
    width = max(len(name) for name, _, _ in rows)
    return [f"{name:<{width}}  {seconds:>10}  {share:>4}".rstrip() for name, seconds, share in rows]


def _covered(phases: Sequence[TimedPhase]) -> float:
    """The seconds in which at least one phase went on; one whose beginning is not known goes on alone."""
    alone = sum(phase.seconds for phase in phases if phase.began is None)
    return alone + timings.covered((phase.began, phase.seconds) for phase in phases if phase.began is not None)


def _row(name: str, seconds: float, total: float) -> tuple[str, str, str]:
    return name, wording.duration(seconds), f"{seconds / total:.0%}" if total > 0 else ""
