"""The memory of a run as text: the peak, what there is at the peak, and every buffer by launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.terminal_cells import Cell, Column, Sentence
from aoti_debug.runs.show import text as shown
from aoti_debug.runs.show.text import place_columns
from aoti_debug.views.memory.memory import RunMemory
from aoti_debug.views.memory.storage_timeline import CallMemory, MemoryBlock, Use, growth_per_call, kept_memory

MAX_STORAGES = 40  # storages of a table
_LEAST_GROWTH = 4096  # bytes per call that are worth a line without a launch
_COLUMNS = (
    Column("bytes", align_right=True),
    Column("buffer", min_width=6, share=1),
    Column("from", align_right=True),
    Column("to", align_right=True),
    Column("first in", min_width=12, share=1),
)
_REMARKS = Column("remarks", min_width=12, share=2, dropped_below=110)


def memory_lines(found: RunMemory, most: int | None, width: int) -> Iterator[str]:
    """The lines.

    Args:
        most: how many storages are listed at most; None for all.
    """
    worst = _worst(found)
    yield from facts(found)
    live = worst.live(worst.peak)
    yield from ("", f"at the peak, {worst.launches[worst.peak].id}", *_table(live, worst, most, width))
    others = sorted((s for s in worst.storages if s.is_of_call and s not in live), key=lambda s: -s.bytes)
    if others:
        yield from ("", "at other times", *_table(others, worst, most, width))
    yield f"run: {wording.short_path(found.run.path)}"


def facts(found: RunMemory) -> Iterator[str]:
    """The peak, what does not count towards it, and what the counters of the process say, a line each."""
    worst = _worst(found)
    yield f"run {found.run.path.name}: {peak_text(found)}"
    workspace = worst.workspace.get(worst.peak, 0)
    if workspace:
        yield f"  of it    {_size(worst.allocated[worst.peak])} buffers, {_size(workspace)} workspace of the operator"
    yield f"  weights  {_size(worst.total(Use.WEIGHT))} that launches read, not in the peak"
    yield f"  inputs   {_size(worst.total(Use.INPUT))}, not in the peak"
    yield f"  outputs  {_size(worst.total(Use.OUTPUT))} of the peak's call"
    yield from _beyond(found, worst)
    yield from _growth(found)
    yield from (f"  note     {note}" for note in found.memory.notes)


def peak_text(found: RunMemory) -> str:
    """ "peak 2.0 KiB in 0.1 cpp_fused_relu_0, model.py:12"."""
    worst = _worst(found)
    launch = worst.launches[worst.peak]
    where = f"{launch.id} {launch.kernel}, {shown.model_line(launch.site.provenance)}"
    return f"peak {_size(worst.peak_bytes)} in {where}"


def at_peak(found: RunMemory) -> tuple[tuple[MemoryBlock, ...], tuple[Column, ...], list[list[str | Cell]]]:
    """The storages that are there at the peak, and the columns and rows of their table."""
    worst = _worst(found)
    storages = worst.live(worst.peak)
    return storages, *_columns_and_rows(storages, worst)


def _worst(found: RunMemory) -> CallMemory:
    worst = found.memory.worst
    assert worst is not None, "a run without launches has no memory"
    return worst


def _beyond(found: RunMemory, worst: CallMemory) -> Iterator[str]:
    """What the counters of the process saw, beside what the launches were passed."""
    if worst.call >= len(found.measured.calls):
        return
    call = found.measured.calls[worst.call]
    if call.peak_allocated:
        measured = call.peak_allocated - call.allocated
        beyond = measured - worst.peak_bytes
        where = "workspace of operators" if beyond > 0 else "fewer bytes than computed"
        yield f"  measured {_size(measured)} at the peak by torch's allocator: {_size(abs(beyond))} {where}"
    elif call.peak_resident:
        more = max(call.peak_resident - call.resident, 0)
        whole = _size(call.peak_resident)
        yield f"  measured {_size(more)} more resident at the peak than before the call, {whole} in all"
    snapshot = found.snapshot
    if snapshot is not None:
        yield f"  snapshot {snapshot}, for https://pytorch.org/memory_viz"
    if found.measured.without_snapshot:
        yield f"  snapshot none: {found.measured.without_snapshot}"


def _growth(found: RunMemory) -> Iterator[str]:
    """How the calls differ."""
    calls, measured = found.memory.calls, found.measured.calls
    peaks = [call.peak_bytes for call in calls]
    if len(calls) > 1:
        yield f"  calls    {len(calls)}: peaks from {_size(min(peaks))} to {_size(max(peaks))}"
    if len(measured) > 2:
        counters = [m.allocated or m.resident for m in measured]
        what = "allocated" if measured[-1].allocated else "resident"
        growth = counters[-1] - counters[1]
        more = f"; {_size(grown)} more allocated at each call" if (grown := growth_per_call(found.measured)) > 0 else ""
        yield f"  growth   {_signed(growth)} {what} from before call 1 to before call {len(counters) - 1}{more}"
        yield from _kept(found)


def _kept(found: RunMemory) -> Iterator[str]:
    """The launches that make what is allocated grow."""
    kept = kept_memory(found.memory, found.measured)
    if not kept and growth_per_call(found.measured) >= _LEAST_GROWTH:
        yield "  keeps    no launch was seen to keep it"
    for one in kept:
        where = f"{one.launch.id} {one.launch.kernel}, {shown.model_line(one.launch.site.provenance)}"
        if one.is_measured:
            seen = f"more was allocated after it than before it, its results left out, in each of {one.calls} calls"
            yield f"  keeps    {_size(one.bytes)} per call in {where}: {seen}"
        else:
            seen = f"its result lay at another address in each of {one.calls} calls"
            yield f"  keeps    it may be {_size(one.bytes)} per call in {where}: {seen}"


def _table(storages: Sequence[MemoryBlock], call: CallMemory, most: int | None, width: int) -> Iterator[str]:
    columns, rows = _columns_and_rows(storages[:most], call)
    yield from terminal_cells.table(columns, rows, width).lines_and_hidden(width)
    if most is not None and len(storages) > most:
        yield f"and {len(storages) - most} more (--all)"


def _columns_and_rows(
    storages: Sequence[MemoryBlock], call: CallMemory
) -> tuple[tuple[Column, ...], list[list[str | Cell]]]:
    first = [call.launches[storage.first] for storage in storages]
    places = place_columns(launch.site.provenance for launch in first)
    has_remarks = any(map(_remarks, storages))
    rows: list[list[str | Cell]] = [
        [
            _size(storage.bytes),
            storage.name,
            launch.id,
            call.launches[storage.last].id,
            launch.kernel,
            *places.cells(launch.site.provenance),
            *([Sentence(_remarks(storage))] if has_remarks else ()),
        ]
        for storage, launch in zip(storages, first, strict=True)
    ]
    return (*_COLUMNS, *places.columns, *((_REMARKS,) if has_remarks else ())), rows


def _remarks(storage: MemoryBlock) -> str:
    words = ["an output"] if storage.use is Use.OUTPUT else []
    words += [f"made by {storage.made_by}"] if storage.made_by else []
    words += [f"used again as {', '.join(storage.names[1:])}"] if storage.names[1:] else []
    return "; ".join(words)


def _size(count: float) -> str:
    return wording.byte_size(count)


def _signed(count: int) -> str:
    return f"{'-' if count < 0 else '+'}{_size(abs(count))}"
