"""The page with the curves of a run: the statistics of each tensor over the calls, as plain data for its scripts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.base.machine.files import atomic_write
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.summaries import CallSample, Series, Summaries
from aoti_debug.views.report.page import PageParts, render
from aoti_debug.views.summaries.measures import PRECISIONS, drift, overflow_headroom, underflow_headroom
from aoti_debug.views.summaries.table import heading, headroom_text

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
