"""Batch invariance as lines of text, and as JSON data: docs/invariance.schema.json."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.machine.files import json_data
from aoti_debug.compare.bisect.equal_result import price_document, price_text
from aoti_debug.compare.diff.element_difference import ElementDifference
from aoti_debug.compare.diff.repeated_calls import ATOMIC
from aoti_debug.compare.invariance.remedies import RemedyTrial
from aoti_debug.compare.invariance.sample_rows import RowsRelation
from aoti_debug.compare.invariance.variance import LaunchRelation, LaunchRows, SampleRun, SampleTensor
from aoti_debug.compare.invariance.varying_launches import BeginCause, Invariance, VaryingLaunch
from aoti_debug.package.manifest import Kernel
from aoti_debug.runs.run.timed_pairs import PairedTimes

FORMAT = 1
_GEMM_BLOCKS = re.compile(r"constexpr int64_t (Mr|Nr|Kr) = (\d+);")
_THREAD_PARTS = re.compile(r"_arr\[tid\]|_local\[tid\]|for \(int tid = 0; tid < (?:max|num)_threads")
_ALL_OTHERS = "all other runs"
MAX_LISTED = 8  # launches of each list unless all are asked for
RELATIONS = {
    LaunchRelation.BEGINS: "read the same bits of the sample, and wrote others",
    LaunchRelation.MIXES: "what it writes for the sample changes with the values of the other rows",
    LaunchRelation.UNREPEATABLE: "writes other bits from run to run, with the same inputs",
    LaunchRelation.UNKNOWN: "not known",
}
REASONS = {
    BeginCause.ROUNDING: "rounding suffices to explain it",
    BeginCause.PROGRAM: "the program computes with the size, the place or other rows: other values in float64 too",
    BeginCause.RANDOM: "it draws random numbers, which may depend on the size and the place",
}


def invariance_lines(
    found: Invariance,
    trials: Sequence[RemedyTrial] = (),
    padding: PairedTimes | None = None,
    *,
    most: int = MAX_LISTED,
) -> list[str]:
    """The runs, the launches in which the sample's bits begin to differ, and the verdict.

    Args:
        trials: builds with other settings.
        padding: times of a call of the size that is enough, beside the smallest size.
        most: how many launches each list has.
    """
    lines = [*_subject(found), ""]
    lists = (found.begins, found.mixes, found.unrepeatable, found.unknown)
    for launches in lists:
        for item in launches[:most]:
            lines += launch_lines(item, found)
        if len(launches) > most:
            lines.append(f"and {len(launches) - most} more: --all lists them")
    lines += list(_own(found, most))
    if any(lists):
        lines.append("")
    lines += list(_counts(found))
    lines += list(_outputs(found))
    lines += [*_enough(found, padding), *itertools.chain.from_iterable(map(trial_lines, trials))]
    return [*lines, *(f"note: {note}" for note in found.notes), found.verdict]


def _subject(found: Invariance) -> Iterator[str]:
    rows = wording.pluralize(found.alone.width, "row")
    yield f"sample   {rows} along {found.varied.text} ({found.varied.symbol}): {found.alone.surroundings.text}"
    yield f"against  {'; '.join(run.surroundings.text for run in found.runs)}"


def launch_lines(item: VaryingLaunch, found: Invariance) -> Iterator[str]:
    """Yields the lines of a launch in which the sample's bits begin to differ.

    Args:
        found: that it is of.
    """
    first, cause = item.first, None if item.reason is None else item.reason.cause
    yield f"{first.launch.id} {first.launch.kernel}: {RELATIONS[item.relation]}"
    if line := _model_line(item):
        yield f"  model    {line}"
    if first.reason:
        yield f"  because  {first.reason}"
    yield f"  at       {_places([run.surroundings.text for run, _ in item.rows], found)}"
    for tensor in first.differing:
        yield f"  {tensor.name:<8} {_tensor(tensor)}"
    if mixed := [tensor.name for tensor in first.writes if tensor.rows.relation is RowsRelation.MIXED]:
        yield f"  changes  {wording.join_truncated(mixed, 4)} with the values of the other rows"
    varied = [tensor for tensor in first.reads if tensor.shapes[0] != tensor.shapes[1]]
    if item.relation is LaunchRelation.BEGINS and varied:
        yield f"  read     {', '.join(map(_shapes, varied))}: the same bits of the sample"
    if item.reason is not None:
        yield f"  why      {REASONS[item.reason.cause]}{f': {evidence}' if (evidence := item.reason.evidence) else ''}"
    is_of_kernel = item.relation is LaunchRelation.BEGINS and cause in (None, BeginCause.ROUNDING)
    for fact in facts(first, found.alone.run.manifest.kernels) if is_of_kernel else ():
        yield f"  known    {fact}"


def _places(places: Sequence[str], found: Invariance) -> str:
    """Runs by what lies beside the sample: "all other runs", "size 4, place 0; size 16, place 0"."""
    return _ALL_OTHERS if len(places) == len(found.runs) > 1 else "; ".join(places)


def facts(rows: LaunchRows, kernels: Sequence[Kernel]) -> Iterator[str]:
    """Yields what is known of how a launch computes: its operator, its grid and configuration, words of its source.

    Args:
        kernels: of the package.
    """
    site = rows.launch.site
    if site.op:
        yield f"{site.op} is a routine of a library: it may choose its algorithm by the sizes"
    for first, second in zip(rows.alone.grids, rows.launch.grids, strict=False):
        if first.grid != second.grid:
            yield f"{second.kernel} is launched with a grid of {first.grid} alone, of {second.grid} here"
    names = site.launches or (site.kernel,)
    for kernel in (kernel for kernel in kernels if kernel.name in names):
        if kernel.config:
            config = " ".join(f"{name}={value}" for name, value in kernel.config)
            yield f"{kernel.name} has one configuration for all sizes: {config}, {kernel.num_warps} warps"
        if blocks := _GEMM_BLOCKS.findall(kernel.source):
            blocks_text = " ".join(f"{name}={value}" for name, value in dict(blocks).items())
            yield f"its source is a GEMM template with blocks of {blocks_text}"
        if _THREAD_PARTS.search(kernel.source):
            yield "its source adds up parts of a reduction that threads compute"
        if any(word in kernel.source for word in ATOMIC):
            yield "its source adds atomically"


def _own(found: Invariance, most: int) -> Iterator[str]:
    own = found.own or ()
    for item in own[:most]:
        launch = item.first.launch
        yield f"{launch.id} {launch.kernel}: begins of its own as well, given the bits that the sample has alone"
        if line := _model_line(item):
            yield f"  model    {line}"
        for tensor in item.first.differing:
            yield f"  {tensor.name:<8} {_tensor(tensor)}"
    if len(own) > most:
        yield f"and {len(own) - most} more: --all lists them"


def _model_line(item: VaryingLaunch) -> str:
    origin = item.first.launch.site.provenance
    lines = [line.place for line in origin.source[:1]]
    return "  ".join([*lines, *([f"in {wording.join_truncated(origin.modules, 3)}"] if origin.modules else [])])


def _tensor(tensor: SampleTensor) -> str:
    found = tensor.rows.elements
    if found is None:
        return "has another number of elements for the sample"
    differ = f"{found.different} of {wording.pluralize(found.elements, 'element')} of the sample differ"
    if found.max_ulp is not None:
        return f"{differ}, at most {wording.number(found.max_ulp)} ULP"
    return differ if found.max_absolute is None else f"{differ}, at most by {wording.number(found.max_absolute)}"


def _shapes(tensor: SampleTensor) -> str:
    first, second = (f"[{', '.join(map(str, shape))}]" for shape in tensor.shapes)
    return f"{tensor.name} {first} and {second}"


def _counts(found: Invariance) -> Iterator[str]:
    if found.follows:
        of_own = "; given the bits of the sample alone, they write the same" if found.own == () else ""
        yield f"{wording.pluralize(found.follows, 'launch')} read other bits of the sample, and wrote others{of_own}"
    if found.absorbs:
        yield f"{wording.pluralize(found.absorbs, 'launch')} read other bits of the sample, and wrote the same"
    if found.same:
        yield f"{wording.pluralize(found.same, 'launch')} with the same bits of the sample in every run"


def _outputs(found: Invariance) -> Iterator[str]:
    told: dict[tuple[int, str], list[str]] = {}
    for run, outputs in found.outputs:
        for output in outputs:
            if output.tensor.rows.relation is not RowsRelation.EQUAL:
                told.setdefault((output.index, _output(output.tensor)), []).append(run.surroundings.text)
    for (index, what), places in told.items():
        yield f"output {index}: {what} ({_places(places, found)})"


def _output(tensor: SampleTensor) -> str:
    rows = tensor.rows
    if rows.relation is RowsRelation.MIXED:
        return "changes with the values of the other rows"
    return f"is not known ({rows.reason})" if rows.relation is RowsRelation.UNKNOWN else _tensor(tensor)


def _enough(found: Invariance, padding: PairedTimes | None) -> Iterator[str]:
    """What gives the sample the same bits everywhere, as far as it was run."""
    enough = found.enough
    if enough:
        least = min(run.surroundings.size for run in enough)
        runs = _places([run.surroundings.text for run in enough], found)
        most = max(run.surroundings.size for run in enough)
        sizes = f"the size {least} for all" if least == most else f"sizes from {least} to {most}"
        yield f"works: {sizes} (fill smaller ones up): the same bits {'in' if runs == _ALL_OTHERS else 'at'} {runs}"
        if padding is not None:
            yield f"  time     {price_text(padding)}"


def trial_lines(trial: RemedyTrial) -> Iterator[str]:
    """Yields the lines of a build with a remedy."""
    yield f"{_outcome(trial)}: {' '.join(trial.lines)}"
    if trial.module is not None:
        yield f"  file     {trial.module}: {trial.remedy.what}"
    yield f"  {'failed  ' if trial.found is None else 'built   '} {trial.said}"
    if trial.price is not None:
        yield f"  time     {price_text(trial.price)}"
    elif trial.seems_to_work:
        yield "  time     not measured"


def _outcome(trial: RemedyTrial) -> str:
    if trial.found is None:
        return "not built or run"
    return "works" if trial.works else "works as far as it is known" if trial.seems_to_work else "does not work"


def document(
    found: Invariance, trials: Sequence[RemedyTrial] = (), padding: PairedTimes | None = None
) -> dict[str, Any]:
    """The object that `aoti-debug invariance --json` prints.

    Args:
        trials: builds with other settings.
        padding: times of a call of the size that is enough, beside the smallest size.
    """
    kernels = found.alone.run.manifest.kernels
    return {
        "format": FORMAT,
        "verdict": found.verdict,
        "is_invariant": not found.is_finding and found.is_complete,
        "dim": {"symbol": found.varied.symbol, "input": found.varied.text},
        "width": found.alone.width,
        "alone": _run(found.alone),
        "runs": [_run(run) for run in found.runs],
        "launches": found.launches,
        "begins": _launches(found.begins, kernels),
        "mixes": _launches(found.mixes, kernels),
        "unrepeatable": _launches(found.unrepeatable, kernels),
        "unknown": _launches(found.unknown, kernels),
        "own": None if found.own is None else _launches(found.own, kernels),
        "equal_runs": [[run.surroundings.members for run in group] for group in found.equal_runs],
        "enough": min((run.surroundings.size for run in found.enough), default=None),
        "follows": found.follows,
        "absorbs": found.absorbs,
        "same": found.same,
        "notes": list(found.notes),
        "enough_price": price_document(padding),
        "fixes": [
            {
                "lines": list(trial.lines),
                "works": trial.works,
                "seems_to_work": trial.seems_to_work,
                "said": trial.said,
                "module": None if trial.module is None else str(trial.module),
                "price": price_document(trial.price),
            }
            for trial in trials
        ],
        "relations": [
            {
                "launch": one.launch.id,
                "kernel": one.launch.kernel,
                "modules": list(one.launch.site.provenance.modules),
                "relations": [relation.value for relation in one.relations],
            }
            for one in found.relations
        ],
        "outputs": [
            {"output": output.index, **run.surroundings.members, **_rows(output.tensor)}
            for run, outputs in found.outputs
            for output in outputs
        ],
    }


def _run(run: SampleRun) -> dict[str, Any]:
    return {"run": str(run.run.path), **run.surroundings.members}


def _launches(items: Iterable[VaryingLaunch], kernels: Sequence[Kernel]) -> list[dict[str, Any]]:
    return [
        {
            "launch": item.first.launch.id,
            "kernel": item.first.launch.kernel,
            "model": next((line.place for line in item.first.launch.site.provenance.source), None),
            "modules": list(item.first.launch.site.provenance.modules),
            "reason": item.first.reason,
            "cause": None if item.reason is None else item.reason.cause.value,
            "evidence": "" if item.reason is None else item.reason.evidence,
            "known": list(facts(item.first, kernels)),
            "runs": [run.surroundings.members for run, _ in item.rows],
            "reads": _tensors(item.first.reads),
            "writes": _tensors(item.first.writes),
        }
        for item in items
    ]


def _tensors(tensors: Sequence[SampleTensor]) -> list[dict[str, Any]]:
    return [{"name": tensor.name, "shapes": [list(s) for s in tensor.shapes], **_rows(tensor)} for tensor in tensors]


def _rows(tensor: SampleTensor) -> dict[str, Any]:
    found = tensor.rows
    relation = {"relation": found.relation.value, "reason": found.reason}
    return relation if found.elements is None else {**relation, **_elements(found.elements)}


def _elements(found: ElementDifference) -> dict[str, Any]:
    return {
        "elements": found.elements,
        "different": found.different,
        "ulp": json_data.number(found.max_ulp),
        "atol": json_data.number(found.max_absolute),
        "rtol": json_data.number(found.max_relative),
    }
