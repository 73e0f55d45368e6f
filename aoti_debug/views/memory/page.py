"""The HTML page of a run's memory: a picture of each call's bytes over its launches, and the tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.views.memory.memory import RunMemory, document
from aoti_debug.views.memory.storage_timeline import CallMemory, MemoryBlock, kept_memory
from aoti_debug.views.memory.text import at_peak, facts, peak_text
from aoti_debug.views.report.page import PageParts, render, static_rows

WIDTH, HEIGHT = 100.0, 320.0  # per cent of the width of the page, pixels
MAX_AREAS = 400  # the largest ones; the others are drawn as one
COLOURS = (  # light enough for black words
    *("#7aa6d6", "#f2a65a", "#7fc97f", "#e88b8b", "#8fd3cf", "#f0d35e"),
    *("#c7a0d8", "#c9a27e", "#f5b5c8", "#a9b8f0", "#b7cf6a", "#d98fd0"),
)
OTHERS = "#9aa0a6"
NAME = "report/memory.html"
_PARTS = PageParts("memory.html", (), ("report.css",), ())
MAX_CALLS = 20  # pictures; those with the highest peaks
_HEIGHTS, _LAUNCHES = 5, 8  # marks of the axes, about
_LEAST_HEIGHT = 15.0  # pixels of an area with a name
_CHARACTERS = 0.8  # of a name in a hundredth of the width of a narrow page


@dataclass(frozen=True)
class Area:
    """A rectangle of the picture; one storage has several where others below it come and go.

    Attributes:
        x, width: in the unit of WIDTH.
        y, height: in the unit of HEIGHT, from the upper edge.
        title: what a pointer on it shows.
        label: what stands in it; "" where there is no room.
    """

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str
    label: str = ""


@dataclass(frozen=True)
class Tick:
    """A mark of an axis.

    Attributes:
        at: per cent of the axis.
    """

    at: float
    text: str


@dataclass(frozen=True)
class Picture:
    """The areas, where the peak is, and the marks of the axes.

    Attributes:
        peak_x: the middle of the launch with the peak.
        heights: bytes.
        launches: ids.
    """

    areas: tuple[Area, ...]
    peak_x: float
    heights: tuple[Tick, ...] = ()
    launches: tuple[Tick, ...] = ()


@dataclass(frozen=True)
class _Verdict:
    """The verdict on a page, with its sign."""

    sign: str
    title: str


def picture(call: CallMemory) -> Picture:
    """The picture of a call: its launches from left to right, equally wide; older storages lie below younger ones."""
    count = max(len(call.launches), 1)
    step = WIDTH / count
    drawn = _drawn(call)
    scale = HEIGHT / max(call.peak_bytes, 1)
    workspace = [
        _area(
            position, position + 1, call.allocated[position], count, (step, scale), OTHERS, f"workspace: {count} bytes"
        )
        for position, count in call.workspace.items()
    ]
    colours = colours_of(call)
    areas = [
        _named(_area(begin, end, base, bytes_, (step, scale), colours.get(storage, OTHERS), title), storage)
        for begin, end, base, bytes_, storage, title in _runs(call, drawn)
    ]
    return Picture((*areas, *workspace), (call.peak + 0.5) * step, _heights(call.peak_bytes), _launches(call))


def _drawn(call: CallMemory) -> frozenset[MemoryBlock]:
    """The storages that are areas of their own."""
    return frozenset(sorted((s for s in call.storages if s.is_of_call), key=lambda s: -s.bytes)[:MAX_AREAS])


def colours_of(call: CallMemory) -> dict[MemoryBlock | None, str]:
    """The colours of the storages that are drawn: another one than those of storages that are there at the same time.

    Where more are there than there are colours, it is one that few of them have.
    """
    colours: dict[MemoryBlock | None, str] = {}
    ends = dict.fromkeys(COLOURS, -1)  # where each colour was seen last
    for storage in sorted(_drawn(call), key=lambda s: (s.first, s.names)):
        beside = Counter(colours[s] for s in colours if s is not None and s.last >= storage.first)
        colour = min(COLOURS, key=lambda one: (beside[one], ends[one], COLOURS.index(one)))
        colours[storage] = colour
        ends[colour] = max(ends[colour], storage.last)
    return colours


def _heights(peak: int) -> tuple[Tick, ...]:
    """Marks at multiples of a power of two."""
    step = 1 << max(math.ceil(math.log2(max(peak, 1) / _HEIGHTS)), 0)
    return tuple(Tick(100 * count / max(peak, 1), wording.byte_size(count)) for count in range(0, peak + 1, step))


def _launches(call: CallMemory) -> tuple[Tick, ...]:
    count = len(call.launches)
    step = max(math.ceil(count / _LAUNCHES), 1)
    return tuple(Tick(100 * (at + 0.5) / count, call.launches[at].id) for at in range(0, count, step))


def _area(begin: int, end: int, base: int, bytes_: int, units: tuple[float, float], colour: str, title: str) -> Area:
    step, scale = units
    return Area(begin * step, HEIGHT - (base + bytes_) * scale, (end - begin) * step, bytes_ * scale, colour, title)


def _named(area: Area, storage: MemoryBlock | None) -> Area:
    """The area with the name of its storage in it, if it is large enough."""
    room = int(area.width * _CHARACTERS)
    if storage is None or area.height < _LEAST_HEIGHT or room < min(len(storage.name), 5):
        return area
    return replace(area, label=terminal_cells.shorten_middle(storage.name, room))


def _runs(
    call: CallMemory, drawn: Collection[MemoryBlock]
) -> Iterator[tuple[int, int, int, int, MemoryBlock | None, str]]:
    """(first launch, launch behind the last, bytes below it, bytes, storage, title) of each rectangle."""
    open_: dict[MemoryBlock | None, tuple[int, int, int]] = {}  # first launch, bytes below, bytes
    for position in range(len(call.launches) + 1):
        now = _stacked(call, drawn, position) if position < len(call.launches) else {}
        for storage, (begin, base, bytes_) in list(open_.items()):
            if now.get(storage) != (base, bytes_):
                yield begin, position, base, bytes_, storage, _title(storage, call)
                del open_[storage]
        for storage, (base, bytes_) in now.items():
            open_.setdefault(storage, (position, base, bytes_))


def _stacked(
    call: CallMemory, drawn: Collection[MemoryBlock], position: int
) -> dict[MemoryBlock | None, tuple[int, int]]:
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
    _, *rest = facts(found)
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
    storages, columns, rows = at_peak(found)
    colours = colours_of(calls[0])
    peak = peak_text(found)
    size = peak.partition(" in ")[0]
    grows = any(kept.is_measured for kept in kept_memory(found.memory, found.measured))
    verdict = _Verdict("↗", "memory grows") if grows else None
    values = {
        "name": found.run.path.name,
        "model": found.model,
        "verdict": verdict,
        "title": f"{verdict.title if verdict else size}: {found.model or found.run.path.name}, memory",
        "title_text": f"P{peak[1:]}",
        "facts": rest,
        "pictures": pictures,
        "hidden": len(found.memory.calls) - len(calls),
        "height": HEIGHT,
        "columns": columns,
        "rows": static_rows(columns, rows),
        "swatches": [colours.get(storage, OTHERS) for storage in storages],
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
