"""The HTML page of a run's memory: a picture of each call's bytes over its launches, and the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.views.memory.memory import RunMemory, document
from aoti_debug.views.memory.storage_timeline import CallMemory, MemoryBlock
from aoti_debug.views.memory.text import at_peak, facts
from aoti_debug.views.report.page import PageParts, render

WIDTH, HEIGHT = 1000.0, 320.0
MAX_AREAS = 400  # the largest ones; the others are drawn as one
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b", "#9d755d", "#bab0ac", "#79706e")
OTHERS = "#8888884d"
NAME = "report/memory.html"
_PARTS = PageParts("memory.html", (), ("report.css",), ())
MAX_CALLS = 20  # pictures; those with the highest peaks


@dataclass(frozen=True)
class Area:
    """A rectangle of the picture; one storage has several where others below it come and go.

    Attributes:
        x, y, width, height: in the units of the picture, from its upper left corner.
        title: what a pointer on it shows.
    """

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str


@dataclass(frozen=True)
class Picture:
    """The areas, and where the peak is.

    Attributes:
        peak_x: the middle of the launch with the peak.
    """

    areas: tuple[Area, ...]
    peak_x: float


def picture(call: CallMemory) -> Picture:
    """The picture of a call: its launches from left to right, equally wide; older storages lie below younger ones."""
    count = max(len(call.launches), 1)
    step = WIDTH / count
    drawn = set(sorted((s for s in call.storages if s.is_of_call), key=lambda s: -s.bytes)[:MAX_AREAS])
    scale = HEIGHT / max(call.peak_bytes, 1)
    workspace = [
        _area(
            position, position + 1, call.allocated[position], count, (step, scale), OTHERS, f"workspace: {count} bytes"
        )
        for position, count in call.workspace.items()
    ]
    colours = {s: COLOURS[n % len(COLOURS)] for n, s in enumerate(s for s in call.storages if s in drawn)}
    areas = [
        _area(begin, end, base, bytes_, (step, scale), colour, title)
        for begin, end, base, bytes_, colour, title in _runs(call, drawn, colours)
    ]
    return Picture((*areas, *workspace), (call.peak + 0.5) * step)


def _area(begin: int, end: int, base: int, bytes_: int, units: tuple[float, float], colour: str, title: str) -> Area:
    step, scale = units
    return Area(begin * step, HEIGHT - (base + bytes_) * scale, (end - begin) * step, bytes_ * scale, colour, title)


def _runs(
    call: CallMemory, drawn: set[MemoryBlock], colours: Mapping[MemoryBlock, str]
) -> Iterator[tuple[int, int, int, int, str, str]]:
    """(first launch, launch behind the last, bytes below it, bytes, colour, title) of each rectangle."""
    open_: dict[MemoryBlock | None, tuple[int, int, int]] = {}  # first launch, bytes below, bytes
    for position in range(len(call.launches) + 1):
        now = _stacked(call, drawn, position) if position < len(call.launches) else {}
        for storage, (begin, base, bytes_) in list(open_.items()):
            if now.get(storage) != (base, bytes_):
                yield (
                    begin,
                    position,
                    base,
                    bytes_,
                    colours.get(storage, OTHERS) if storage else OTHERS,
                    _title(storage, call),
                )
                del open_[storage]
        for storage, (base, bytes_) in now.items():
            open_.setdefault(storage, (position, base, bytes_))


def _stacked(call: CallMemory, drawn: set[MemoryBlock], position: int) -> dict[MemoryBlock | None, tuple[int, int]]:
    """The storages of a launch from below, each with the bytes below it and its own; None for those not drawn alone."""
    stacked: dict[MemoryBlock | None, tuple[int, int]] = {}
    base = others = 0
    for storage in sorted(call.live(position), key=lambda s: (s.first, s.names)):
        if storage in drawn:
            stacked[storage] = (base, storage.bytes)
            base += storage.bytes
        else:
            others += storage.bytes
    return {**stacked, None: (base, others)} if others else stacked


def _title(storage: MemoryBlock | None, call: CallMemory) -> str:
    if storage is None:
        return "smaller buffers"
    launches = f"{call.launches[storage.first].id} to {call.launches[storage.last].id}"
    return f"{', '.join(storage.names)}: {storage.bytes} bytes, {launches}"


def page(found: RunMemory) -> str:
    """The text of the page."""
    title, *rest = facts(found)
    calls = sorted(found.memory.calls, key=lambda call: -call.peak_bytes)[:MAX_CALLS]
    pictures = [
        {
            "call": call.launches[0].id.partition(".")[0],
            "launches": len(call.launches),
            "peak": wording.byte_size(call.peak_bytes),
            "peak_launch": call.launches[call.peak].id,
            "picture": picture(call),
        }
        for call in calls
    ]
    columns, *rows = at_peak(found)
    values = {
        "name": found.run.path.name,
        "title_text": title,
        "facts": rest,
        "pictures": pictures,
        "hidden": len(found.memory.calls) - len(calls),
        "width": WIDTH,
        "height": HEIGHT,
        "columns": columns,
        "rows": rows,
    }
    return render(_PARTS, document(found), values)


def write(found: RunMemory, output: Path | None = None) -> Path:
    """Writes the page of a run's memory over an older one; returns its path.

    Args:
        output: the file; None for report/memory.html in the run.

    Raises:
        UsageError: the file cannot be written.
    """
    return atomic_write.write_page(page(found), output, found.run.path / NAME)
