"""The summaries of a run as a table of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.terminal_cells import Cell, Column, Sentence
from aoti_debug.runs.rundir.summaries import CallSample, Series, Summaries, finite
from aoti_debug.runs.show.place_columns import ModuleCell
from aoti_debug.views.summaries.measures import PRECISIONS, Precision, drift, least_headroom

_UNKNOWN = "-"
COLUMNS = (
    Column("launch", align_right=True),
    Column("module", min_width=12, share=2),
    Column("kernel", min_width=12, share=2, dropped_below=160),
    Column("argument", min_width=8, share=1),
    Column("dtype", dropped_below=140),
    Column("min", align_right=True),
    Column("max", align_right=True),
    Column("mean", align_right=True),
    Column("std", align_right=True, dropped_below=100),
    Column("zeros", align_right=True, dropped_below=100),
    Column("not finite", align_right=True),
    *(Column(precision.name, align_right=True, dropped_below=180) for precision in PRECISIONS),
    Column("drift", min_width=16, share=2),
)


def table_lines(summaries: Summaries, series: Sequence[Series], limit: int | None, width: int) -> list[str]:
    """The tensors, one in each line, drifting ones first.

    Args:
        series: those that are asked for.
        limit: how many are shown; None for all.
    """
    drifts = {id(one): drift(one) for one in series}
    ordered = sorted(series, key=lambda one: not drifts[id(one)])
    shown = ordered if limit is None else ordered[:limit]
    table = terminal_cells.table(COLUMNS, [_row(one, drifts[id(one)]) for one in shown], width)
    lines = [*heading(summaries, len(series)), "", *table.lines_and_hidden(width)]
    if len(shown) < len(series):
        lines.append(f"and {wording.pluralize(len(series) - len(shown), 'more tensor')}; --all shows them all")
    return lines


def heading(summaries: Summaries, count: int) -> list[str]:
    """The number of tensors, calls and replays, and what is missing."""
    replays = summaries.replays
    spans = [wording.pluralize(summaries.calls, "call")] if summaries.calls or not replays else []
    if replays:
        spans.append(_replays_text(replays))
    lines = [f"{wording.pluralize(count, 'tensor')} in {' and '.join(spans)}"]
    unit = "call or replay" if replays else "call"
    if summaries.every > summaries.asked:
        lines.append(f"of one {unit} in {summaries.every}, not {summaries.asked}: the file had no room for more")
    elif summaries.every > 1:
        lines[0] += f", of one {unit} in {summaries.every}"
    if summaries.lost:
        lines.append(f"{wording.pluralize(summaries.lost, 'row')} of single calls had no room")
    if summaries.missed:
        lines.append(f"{wording.pluralize(summaries.missed, 'row')} of replays came too fast to be read")
    return lines


def _replays_text(replays: Mapping[int, int]) -> str:
    """ "731 replays of the CUDA graph that captured call 1"."""
    if len(replays) > 1:
        total = wording.pluralize(sum(replays.values()), "replay")
        return f"{total} of the CUDA graphs that captured {len(replays)} calls"
    ((call, number),) = replays.items()
    return f"{wording.pluralize(number, 'replay')} of {wording.graph_of(call)}"


def _row(series: Series, found: tuple[str, ...]) -> list[str | Cell]:
    samples = series.samples
    return [
        series.place,
        ModuleCell(series.modules) if series.modules else _UNKNOWN,
        series.kernel,
        series.argument,
        series.dtype,
        _number(_least(samples, lambda s: s.min)),
        _number(_most(samples, lambda s: s.max)),
        _change(samples[0].mean, samples[-1].mean),
        _change(samples[0].std, samples[-1].std),
        _share(max(sample.zeros for sample in samples)),
        _share(max(sample.nonfinite for sample in samples)),
        *(headroom_text(series, precision) for precision in PRECISIONS),
        Sentence("; ".join(found)),
    ]


def headroom_text(series: Series, precision: Precision) -> str:
    """The least headroom in bits, of overflow and of underflow: "+3.1 -2.0"; "-" for other than real floats."""
    bits = least_headroom(series, precision)
    return _UNKNOWN if bits is None else " ".join(map(_bits, bits))


def _least(samples: Sequence[CallSample], quantity: Callable[[CallSample], float]) -> float:
    return min(finite(map(quantity, samples)), default=math.nan)


def _most(samples: Sequence[CallSample], quantity: Callable[[CallSample], float]) -> float:
    return max(finite(map(quantity, samples)), default=math.nan)


def _number(value: float) -> str:
    return _UNKNOWN if math.isnan(value) else f"{value:.4g}"


def _change(first: float, last: float) -> str:
    first_text, last_text = _number(first), _number(last)
    return first_text if first_text == last_text else f"{first_text} → {last_text}"


def _share(value: float) -> str:
    return "0" if value == 0 else f"{value:.1%}" if value >= 0.001 else "<0.1%"


def _bits(value: float) -> str:
    return _UNKNOWN if math.isnan(value) else f"{value:+.1f}"
