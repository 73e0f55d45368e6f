"""The page of two runs that were compared with each other."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.compare.diff import text
from aoti_debug.compare.diff.difference import Diff, LaunchDifference, TensorDifference
from aoti_debug.compare.diff.document import document
from aoti_debug.compare.diff.element_difference import element_sizes
from aoti_debug.compare.diff.pairs import PairRelation
from aoti_debug.compare.diff.text import OUTCOMES, explanation_text
from aoti_debug.compare.protocol.measurement import ErrorSpread
from aoti_debug.package.argument_values import unravel
from aoti_debug.package.manifest import Site
from aoti_debug.runs.rundir.formats.stored_tensor import open_tensor
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.report.compact_launches import Table
from aoti_debug.views.report.page import PageParts, render
from aoti_debug.views.report.source_text import editor_links

MAX_ELEMENTS = 1 << 24  # elements of a tensor that is read for it
ONLY_A, ONLY_B = "only in A", "only in B"
_ROW_VERDICTS = (*(outcome.value for outcome in PairRelation), ONLY_A, ONLY_B)
_SAME = "same"
_VERDICTS = ("same as far as it was compared", _SAME, "different", "not compared")
_PARTS = PageParts(
    "diff.html",
    ("tabulator.min.js", "data.js", "spread.js", "errors.js", "rows.js", "diff.js", "main.js"),
    ("tabulator_simple.min.css", "report.css"),
    ("LICENSE-tabulator",),
)


def difference_spread(difference: TensorDifference, a: RunDir, b: RunDir) -> ErrorSpread:
    """The distribution of the differences: in ULP, or in absolute value where the dtype has none; NaN are misplaced.

    Raises:
        ValueError: it is not known; the message says why.
        RunDirError: one of the tensors is damaged.
    """
    import torch

    from aoti_debug.compare.measure.evaluated import spread_of

    pair, elements = difference.pair, difference.elements
    layout, first, second = pair.b.argument.layout, pair.a.file, pair.b.file
    if elements is None or layout is None or first is None or second is None:
        raise ValueError(difference.reason)
    if elements.elements > MAX_ELEMENTS:
        raise ValueError(f"it has more than {wording.pluralize(MAX_ELEMENTS, 'element')}")
    tensors = open_tensor(a.tensor_path(first)), open_tensor(b.tensor_path(second))
    sizes = torch.from_numpy(element_sizes(*tensors))
    if sizes.numel() != layout.numel:
        raise RunDirError(f"{wording.printable(second.path)} is damaged: its size is not that of the launch's tensor")
    ulp = sizes if elements.max_ulp is not None else None
    return spread_of(layout.shape, sizes, ulp, sizes.isinf(), bound=0)


@dataclass(frozen=True)
class _Row:
    """A launch with what it is compared with; one side may be empty."""

    a: tuple[Launch, ...]
    b: tuple[Launch, ...]
    verdict: str

    @property
    def id(self) -> str:
        """Its name on the page: a launch of B may have the id of one that only A has."""
        return self.b[0].id if self.b else f"A {self.a[0].id}"

    @property
    def site(self) -> Site:
        """The launch site, of B if it has one."""
        return (*self.b, *self.a)[0].site


def data_of(diff: Diff, spread: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The data that the scripts of the page read.

    Args:
        spread: where the elements of the first tensor differ; empty if it is not known.
    """
    found = {item["launch"]: item for item in document(diff)["differences"]}
    sites = Table()
    causes = {x.launch.id: explanation_text(x.explanation) for x in diff.launches if x.explanation is not None}
    launches = [_launch(row, found.get(row.id, {}), causes.get(row.id, ""), sites) for row in _rows(diff)]
    return {
        "sites": sites.items,
        "launches": launches,
        "verdicts": _ROW_VERDICTS,
        "meanings": [next((OUTCOMES[o] for o in OUTCOMES if o.value == verdict), "") for verdict in _ROW_VERDICTS],
        "first": None if diff.first is None else diff.first.launch.id,
        "first_parts": bool(diff.parted),
        "spread": list(spread),
    }


def _launch(row: _Row, found: Mapping[str, Any], cause: str, sites: Table) -> dict[str, Any]:
    site = row.site
    return {
        "id": row.id,
        "site": sites.index((bool(row.b), site.id), lambda: _site(site)),
        "a": [[launch.id, launch.kernel] for launch in row.a],
        "b": [[launch.id, launch.kernel] for launch in row.b],
        "verdict": _ROW_VERDICTS.index(row.verdict),
        "tensors": found.get("tensors", []),
        "notes": found.get("notes", []),
        "cause": cause,
    }


def _site(site: Site) -> dict[str, Any]:
    provenance = site.provenance
    frames = [json_data.to_data(frame) for frame in provenance.source]
    return {"kernel": site.kernel, "frames": frames, "certainty": provenance.certainty.value}


def _rows(diff: Diff) -> Iterator[_Row]:
    """The launches in the order of B; one that only A has comes before what A launched after it."""
    position = {launch.key: at for at, launch in enumerate(diff.a.launches)}
    waiting = sorted(diff.only_a, key=lambda launch: position[launch.key])
    at = 0
    for row in _rows_of_b(diff):
        after = max((position[launch.key] for launch in row.a), default=-1)
        while at < len(waiting) and position[waiting[at].key] < after:
            yield _alone(waiting[at])
            at += 1
        yield row
    yield from map(_alone, waiting[at:])


def _alone(launch: Launch) -> _Row:
    return _Row((launch,), (), ONLY_A)


def _rows_of_b(diff: Diff) -> Iterable[_Row]:
    rows = {pair.launch.key: _Row(pair.counterparts, (pair.launch,), pair.outcome.value) for pair in diff.pairs}
    rows |= {launch.key: _Row((), (launch,), ONLY_B) for launch in diff.only_b}
    return (rows[launch.key] for launch in diff.b.launches if launch.key in rows)


def diff_page(diff: Diff, excesses: Sequence[str] | None = None) -> str:
    """The text of the HTML page.

    Args:
        excesses: what exceeds the budget; None without a budget.

    Raises:
        RunDirError: a tensor is damaged.
    """
    first, tensor = diff.first, _first_tensor(diff)
    spread, no_spread = _spread(diff, tensor)
    is_clean = diff.is_same if excesses is None else not excesses
    verdict, rest = _verdict(diff)
    links = editor_links((diff.a, diff.b))
    values = {
        "a": diff.a.path,
        "b": diff.b.path,
        "models": " | ".join(dict.fromkeys(model for run in (diff.a, diff.b) if (model := _model(run)))),
        "links": links,
        "tone": "bad" if not is_clean else "open" if diff.is_same and verdict != _SAME else "good",
        "kind": verdict if excesses is None else "over the budget" if excesses else "within the budget",
        "what": f"{verdict.capitalize()}{rest}",
        "first": None if first is None else _first(first),
        "element": None if tensor is None else _element(tensor),
        "inputs": [text.input_text(item) for item in diff.inputs],
        "summary": text.summary(diff),
        "notes": [note for item in (first,) if item is not None for note in item.notes],
        "explanations": text.explanation_lines(diff, sys.maxsize),
        "remarks": [*text.alone_lines(diff), *text.note_lines(diff)],
        "no_spread": no_spread,
        "excesses": excesses,
        "runs": list(_runs(diff)),
        "settings": diff.settings,
        "command_line": shlex.join(("aoti-debug", "diff", str(diff.a.path), str(diff.b.path))),
    }
    return render(_PARTS, {**data_of(diff, spread), "links": links}, values)


def write(diff: Diff, excesses: Sequence[str] | None, path: Path) -> Path:
    """Writes the page over an older one; returns its path.

    Raises:
        RunDirError: a tensor is damaged.
        UsageError: the file cannot be written.
    """
    return atomic_write.write_page(diff_page(diff, excesses), path, path)


def _verdict(diff: Diff) -> tuple[str, str]:
    """The verdict in small letters, and what follows it: ("different", " from 0.5 cpp_fused_add_0 on")."""
    sentence = text.verdict(diff)
    verdict = next(word for word in _VERDICTS if sentence.upper().startswith(word.upper()))
    return verdict, sentence[len(verdict) :]


def _first_tensor(diff: Diff) -> TensorDifference | None:
    """The tensor that differs first: of the launch that parts, otherwise a model input."""
    if diff.parted or not diff.inputs:
        return next(iter(() if diff.first is None else diff.first.tensors), None)
    return diff.inputs[0].tensor


def _first(item: LaunchDifference) -> dict[str, Any]:
    launch = item.launch
    frames = launch.site.provenance.source
    return {
        "launch": launch.id,
        "kernel": launch.kernel,
        "outcome": text.OUTCOMES[item.outcome],
        "counterparts": text.counterparts_text(item),
        "cause": "" if item.explanation is None else text.explanation_text(item.explanation),
        "frame": frames[0] if frames else None,
    }


def _element(difference: TensorDifference) -> dict[str, Any]:
    """The element that differs most, with what both runs have there."""
    found, layout = difference.elements, difference.pair.b.argument.layout
    if found is None or layout is None:
        return {"place": difference.name, "size": difference.reason, "sides": None}
    sizes = [f"{found.different} of {wording.pluralize(found.elements, 'element')} differ"]
    sizes += [] if found.max_ulp is None else [f"at most {wording.number(found.max_ulp)} ULP, here"]
    place = ", ".join(map(str, unravel(found.worst, layout.shape)))
    return {
        "place": f"{difference.name}[{place}]",
        "size": "; ".join(sizes),
        "sides": None if found.values is None else [text.number_text(value) for value in found.values],
    }


def _spread(diff: Diff, difference: TensorDifference | None) -> tuple[list[Mapping[str, Any]], str]:
    """Where the elements of a tensor differ, for the page; or why that is not known."""
    if difference is None:
        return [], ""
    layout, elements = difference.pair.b.argument.layout, difference.elements
    try:
        spread = difference_spread(difference, diff.a, diff.b)
    except ValueError as error:
        return [], f"no map of {difference.name}: {error}"
    assert layout is not None
    assert elements is not None
    return [
        {
            "kind": "different",
            "argument": difference.name,
            "dtype": layout.dtype,
            "shape": layout.shape,
            "count": elements.elements,
            "wrong": elements.different,
            "element": text.element_text(elements, layout.shape),
            **asdict(spread),
        }
    ], ""


def _runs(diff: Diff) -> Iterator[tuple[str, str, str]]:
    """Facts about both runs: (name, in the first, in the second)."""
    for name, value_of in _FACTS.items():
        yield name, value_of(diff.a), value_of(diff.b)


def _calls(run: RunDir) -> str:
    return f"{wording.pluralize(len(run.launches), 'launch')} in {wording.pluralize(len(run.timeline.calls), 'call')}"


def _model(run: RunDir) -> str:
    return run.info.model


_FACTS = {
    "run": lambda run: str(run.path),
    "model": lambda run: _model(run) or "–",
    "recorded": lambda run: f"{run.info.started}, level {run.level}",
    "device": lambda run: run.manifest.device,
    "torch": lambda run: run.info.torch_version or run.manifest.torch_version,
    "ended": lambda run: run.state.text,
    "launches": _calls,
}
