"""The data of a report: everything that the page shows, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from aoti_debug import wording
from aoti_debug.diagnosis import commands, findings
from aoti_debug.diagnosis.findings import FindingKind
from aoti_debug.report import graph, marks
from aoti_debug.report.compact import Compactor, merged
from aoti_debug.report.context import LaunchContext, context_of, places_with_lines
from aoti_debug.report.redaction import NOTHING, Withheld
from aoti_debug.report.samples import BUDGET as SAMPLE_BUDGET
from aoti_debug.report.samples import ELEMENTS, Sampler
from aoti_debug.report.selection import excerpt_of, important_first
from aoti_debug.report.sources import SourceFile, kernels_of, source_of
from aoti_debug.report.subject import ReportSubject
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Launch
from aoti_debug.show.document import document as show_document
from aoti_debug.show.measured import Measurer, worst_value
from aoti_debug.show.overview import BUDGET, notes


@dataclass(frozen=True)
class Document:
    """
    Attributes:
        kind: of the finding.
        head: the finding (findings.to_json).
        run: facts about the run; None where the model was never called.
        contexts: model lines, the victim's first.
        data: launches, graph and histograms, for the page's scripts.
        commands: to type, each with what it does.
        remarks: what the page does not show, and why.
    """

    title: str
    what: str
    name: str
    kind: FindingKind
    head: dict[str, Any]
    run: dict[str, Any] | None
    contexts: tuple[LaunchContext, ...]
    sources: tuple[SourceFile, ...]
    data: dict[str, Any]
    steps: tuple[dict[str, Any], ...]
    versions: dict[str, str]
    commands: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]


def document_of(subject: ReportSubject, withheld: Withheld = NOTHING) -> Document:
    """
    Raises:
        RunDirError: a run is damaged.
    """
    finding = withheld.finding(subject.finding)
    run = subject.run
    sources: tuple[SourceFile, ...] = ()
    known: dict[str, int] = {}
    if run is not None and not withheld.source:
        kernels = {kernel.name: kernel for kernel in run.manifest.kernels if kernel.source}
        sources = tuple(source_of(kernel) for kernel in kernels.values())
        known = {name: index for index, name in enumerate(kernels)}
    data = _data(subject, withheld, known)
    if subject.triage is None:
        finding = replace(finding, warnings=(*finding.warnings, *_first_marked(data)))
    frames = places_with_lines(finding.where, finding.origin)
    return Document(
        title=f"{finding.kind.value}: {subject.name}",
        what=subject.what,
        name=subject.name,
        kind=finding.kind,
        head=findings.to_json(finding),
        run=None if run is None else _facts(run, withheld),
        contexts=() if withheld.source else tuple(context_of(frame) for frame in frames),
        sources=sources,
        data=data,
        steps=tuple({**asdict(step), "text": withheld.text(step.text)} for step in subject.steps),
        versions=dict(subject.versions),
        commands=_commands(subject),
        remarks=(*_remarks(withheld), *_limits(run, data)),
    )


def _facts(run: RunDir, withheld: Withheld) -> dict[str, Any]:
    info = run.info
    return {
        "name": run.path.name,
        "state": run.state.value,
        "detail": withheld.text(info.exit.detail),
        "level": run.level,
        "device": run.manifest.device,
        "filters": list(info.filters),
        "started": info.started,
        "seconds": info.exit.seconds,
        "calls": len(run.timeline.calls),
        "launches": len(run.launches),
        "notes": list(withheld.texts(notes(run))),
    }


def _data(subject: ReportSubject, withheld: Withheld, sources: dict[str, int]) -> dict[str, Any]:
    run, finding = subject.run, subject.finding
    if run is None:
        return {**Compactor(withheld, "").tables(), "launches": [], "histograms": [], "graph": graph.EMPTY}
    verdict = subject.verdict
    damaged = frozenset(damage.key for damage in run.timeline.damages)
    compactor = Compactor(withheld, str(run.path))
    shown_launches = excerpt_of(run, finding, verdict)
    ids = frozenset(launch.id for launch in shown_launches)
    recordings = [_Recording(each, ids) for each in (run, *subject.others)]
    sampler = Sampler()
    launches = []
    for launch in important_first(shown_launches, finding):
        same = [r for r in recordings[1:] if r.has(launch)]
        shown = merged(recordings[0].shown[launch.id], [r.shown[launch.id] for r in same])
        measured = [recordings[0], *same]
        entry = compactor.launch(shown, kernels_of(launch.site, sources))
        found = marks.of_launch(run, launch, finding, verdict)
        found += [marks.Mark.GUARD] if launch.key in damaged else []
        found += marks.of_values(shown["args"])
        if withheld.tensors:
            found = [mark for mark in found if mark is not marks.Mark.NEAR_OVERFLOW]
        entry["marks"] = [mark.value for mark in found]
        entry["worst"] = "" if withheld.tensors else _worst(measured, launch)
        entry["histograms"] = [] if withheld.tensors else _histograms(sampler, measured, launch)
        launches.append(entry)
    order = {launch.id: position for position, launch in enumerate(run.launches)}
    launches.sort(key=lambda entry: order[entry["id"]])
    return {
        **compactor.tables(),
        "launches": launches,
        "histograms": sampler.histograms,
        "sample": ELEMENTS,
        "unread": sampler.unread,
        "graph": graph.graph_of(run, withheld.finding(finding), verdict),
    }


class _Recording:
    """A run and its launches, as show.document describes them."""

    def __init__(self, run: RunDir, ids: frozenset[str]) -> None:
        self.run = run
        self.measurer = Measurer(run, BUDGET)
        self.launches = {x.id: x for x in run.launches if x.id in ids}
        found = show_document(run, None, tuple(self.launches.values()), self.measurer)["launches"]
        self.shown = {x["id"]: x for x in found}

    def has(self, launch: Launch) -> bool:
        other = self.launches.get(launch.id)
        return other is not None and (other.site.id, other.kernel) == (launch.site.id, launch.kernel)


def _worst(recordings: Sequence[_Recording], launch: Launch) -> str:
    found = (worst_value(r.launches[launch.id], r.measurer) for r in recordings)
    return next((said for said in found if said != "-"), "")


def _histograms(sampler: Sampler, recordings: Sequence[_Recording], launch: Launch) -> list[int | None]:
    """One an argument: index in the sampler's histograms."""
    found: list[int | None] = []
    for position in range(len(launch.args)):
        each = (sampler.of(r.run, r.launches[launch.id].args[position]) for r in recordings)
        found.append(next((index for index in each if index is not None), None))
    while found and found[-1] is None:
        found.pop()
    return found


def _first_marked(data: Mapping[str, Any]) -> Iterator[str]:
    """What the statistics of a run show, where nobody has judged them."""
    for mark in (marks.Mark.GUARD, marks.Mark.NAN, marks.Mark.INF, marks.Mark.NEAR_OVERFLOW):
        found = [launch for launch in data["launches"] if mark.value in launch["marks"]]
        if found:
            first = found[0]
            kernel, worst = data["sites"][first["site"]]["kernel"], f": {first['worst']}" if first["worst"] else ""
            launches = wording.count(len(found), "launch")
            yield f"{mark.value} in {launches}, first in launch {first['id']} {kernel}{worst}"


def _commands(subject: ReportSubject) -> tuple[tuple[str, str], ...]:
    found = [(subject.command_line, f"the {subject.what} itself")] if subject.command else []
    run = subject.run
    if run is not None:
        if subject.triage is not None and run.info.command:
            found.append((commands.run_again(run.info), "the run that is shown here"))
        found.append((commands.show(run), "its launches on the terminal"))
    return tuple(found)


def _limits(run: RunDir | None, data: Mapping[str, Any]) -> Iterator[str]:
    shown = len(data["launches"])
    if run is not None and shown < len(run.launches):
        yield f"{shown} of {len(run.launches)} launches are shown: around the one to blame, or the first ones"
    if data.get("unread"):
        unread = wording.count(data["unread"], "tensor")
        yield f"{unread} left without a histogram: {wording.byte_size(SAMPLE_BUDGET)} were read"


def _remarks(withheld: Withheld) -> tuple[str, ...]:
    found = []
    if withheld.tensors:
        found.append("left out: values of tensors, statistics, histograms, and numbers handed to kernels or quoted")
    if withheld.source:
        found.append("left out: source of kernels and of the model, stacks, sentences that may quote them")
    return tuple(found)
