"""The summaries of a run as a table of text, and as a page with curves, of which this is the plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.base.terminal_cells import Cell, Column, Sentence
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.summaries import CallSample, Series, Summaries, finite
from aoti_debug.runs.show.text import ModuleCell
from aoti_debug.views.report.page import PageParts, render
from aoti_debug.views.summaries.measures import (
    PRECISIONS,
    Precision,
    drift,
    least_headroom,
    overflow_headroom,
    underflow_headroom,
)

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


NAME = "summaries.html"
PAGE = Path("report") / NAME
MAX_POINTS = 400  # of a curve; of a longer one, each point stands for several calls or replays
MAX_TENSORS = 500
_PARTS = PageParts(
    "summaries.html", ("uPlot.iife.min.js", "summaries.js"), ("uPlot.min.css", "report.css"), ("LICENSE-uPlot",)
)


def write(run: RunDir, found: Summaries, chosen: Sequence[Series], output: Path | None = None) -> Path:
    """Writes the page with the curves of a run over an older one; returns its path.

    Args:
        chosen: the tensors that it shows.
        output: the file; None for PAGE in the run directory.

    Raises:
        UsageError: the file cannot be written.
    """
    return atomic_write.write_page(page_text(run, found, chosen), output, run.path / PAGE)


def page_text(run: RunDir, summaries: Summaries, series: Sequence[Series]) -> str:
    """The text of the HTML page, with the curves of at most MAX_TENSORS tensors, drifting ones first."""
    found = [(one, drift(one)) for one in series]
    ordered = sorted(found, key=lambda item: not item[1])
    shown = ordered[:MAX_TENSORS]
    data = {
        "precisions": [precision.name for precision in PRECISIONS],
        "series": [_series(one, changes) for one, changes in shown],
    }
    values = {
        "name": run.path.name,
        "model": run.info.model,
        "facts": heading(summaries, len(series)),
        "drifting": [(one, changes) for one, changes in ordered if changes][:MAX_TENSORS],
        "hidden": len(ordered) - len(shown),
        "calls_for_drift": summaries.calls,
    }
    return render(_PARTS, data, values)


def _series(series: Series, changes: tuple[str, ...]) -> dict[str, Any]:
    points = list(_points(series.samples))
    return {
        "launch": series.place,
        "unit": series.unit,
        "tag": series.tag,
        "kernel": series.kernel,
        "argument": series.argument,
        "dtype": series.dtype,
        "drift": list(changes),
        "headroom": [headroom_text(series, precision) for precision in PRECISIONS],
        "call": [part[0].number for part in points],
        "min": _curve(points, lambda s: s.min, min),
        "max": _curve(points, lambda s: s.max, max),
        "mean": _curve(points, lambda s: s.mean, _average),
        "std": _curve(points, lambda s: s.std, _average),
        "zeros": _curve(points, lambda s: 100 * s.zeros, max),
        "nonfinite": _curve(points, lambda s: 100 * s.nonfinite, max),
        "floating": series.is_floating,
        "over": [_curve(points, lambda s, p=p: overflow_headroom(s, p), min) for p in PRECISIONS],  # type: ignore[misc]
        "under": [_curve(points, lambda s, p=p: underflow_headroom(s, p), min) for p in PRECISIONS],  # type: ignore[misc]
    }


def _points(samples: Sequence[CallSample]) -> Iterator[Sequence[CallSample]]:
    """The samples that each point of a curve stands for."""
    step = math.ceil(len(samples) / MAX_POINTS)
    for start in range(0, len(samples), step):
        yield samples[start : start + step]


def _curve(
    points: Sequence[Sequence[CallSample]],
    quantity: Callable[[CallSample], float],
    of_several: Callable[[Sequence[float]], float],
) -> list[float | None]:
    """The values of a curve with six digits; None where there is none."""
    values: list[float | None] = []
    for part in points:
        known = [value for value in map(quantity, part) if math.isfinite(value)]
        values.append(float(f"{of_several(known):.6g}") if known else None)
    return values


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)
