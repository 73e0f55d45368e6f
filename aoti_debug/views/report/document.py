"""The document of a report: everything that the page shows, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.abi import Level
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.comparison import BAD, Comparison
from aoti_debug.package import recording_settings
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.runs.diagnosis import findings, suggested_commands
from aoti_debug.runs.diagnosis.findings import Finding, FindingKind
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.rundir.argument_statistics import Measurer
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show.calls_and_replays import calls_text
from aoti_debug.runs.show.document import launch_documents
from aoti_debug.runs.show.overview import BUDGET, excerpt, notes
from aoti_debug.runs.show.text import hash_text, largest_magnitude
from aoti_debug.views.redaction import NO_REDACTION, Redaction
from aoti_debug.views.report import compact_launches, launch_graph, source_text
from aoti_debug.views.report.compact_launches import Compactor, ComparedLaunches, merge_recordings
from aoti_debug.views.report.source_text import editor_links
from aoti_debug.views.report.subject import ReportSubject
from aoti_debug.views.report.tensor_samples import BUDGET as SAMPLE_BUDGET
from aoti_debug.views.report.tensor_samples import ELEMENTS, Sampler

MAX_LAUNCHES = 10_000  # that a page shows


def select_launches(run: RunDir, finding: Finding, verdict: Verdict | None) -> tuple[Launch, ...]:
    """The launches to show, in order: all, or MAX_LAUNCHES around the guilty one and those that the finding names."""
    named = named_launches(finding)
    around = None if finding.where is None else run.find_launch(finding.where.launch)
    if around is None and verdict is not None and verdict.suspects:
        around = verdict.suspects[0]
    part = excerpt(run.launches, MAX_LAUNCHES, around)
    kept = {launch.key: launch for launch in (*part.shown, *map(run.find_launch, named)) if launch is not None}
    return tuple(sorted(kept.values(), key=lambda launch: run.launches.position(launch.key) or 0))


def named_launches(finding: Finding) -> frozenset[str]:
    """Ids of the launches that a finding names."""
    places = (finding.where, finding.origin, *finding.chain)
    return frozenset(place.launch for place in places if place is not None and place.launch)


def named_first(launches: Sequence[Launch], finding: Finding) -> list[Launch]:
    """The launches that the finding names, then the others: they get their histograms before the budget is spent."""
    named = named_launches(finding)
    return sorted(launches, key=lambda launch: launch.id not in named)


@dataclass(frozen=True)
class Document:
    """The contents of a page.

    Attributes:
        title: of the window: the verdict, then the model.
        model: the name of its file; "" if it is not known.
        kind: of the finding.
        head: the finding (findings.to_json).
        run: facts about the run; None where the model was never called.
        contexts: model lines, the guilty launch's first.
        data: launches, graph and histograms, for the page's scripts.
        commands: command lines, each with what it does.
        remarks: sentences about what the page does not show, and why.
        summaries: name of the page of summaries beside this one; "" for none.
        links: of files of the model to an editor.
    """

    title: str
    what: str
    name: str
    model: str
    kind: FindingKind
    head: dict[str, Any]
    run: dict[str, Any] | None
    contexts: tuple[source_text.LaunchContext, ...]
    sources: tuple[source_text.SourceFile, ...]
    data: dict[str, Any]
    steps: tuple[dict[str, Any], ...]
    versions: dict[str, str]
    commands: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    summaries: str = ""
    links: Mapping[str, str] = field(default_factory=dict)


def document_of(subject: ReportSubject, redaction: Redaction = NO_REDACTION, summaries: str = "") -> Document:
    """The document of a run or a triage.

    Raises:
        RunDirError: a run is damaged.
    """
    finding = redaction.redact_finding(subject.finding)
    run = subject.run
    sources: tuple[source_text.SourceFile, ...] = ()
    source_index: dict[str, int] = {}
    if run is not None and not redaction.removes_source:
        kernels = {kernel.name: kernel for kernel in run.manifest.kernels if kernel.source}
        sources = tuple(source_text.highlight_kernel(kernel) for kernel in kernels.values())
        source_index = {name: index for index, name in enumerate(kernels)}
    data = _data(subject, redaction, source_index)
    if subject.comparison is not None and not redaction.removes_tensors:
        _add_comparison(data, subject.comparison, redaction)
    if subject.triage is None:
        finding = replace(finding, warnings=(*finding.warnings, *_mark_warnings(data)))
    frames = source_text.model_lines_of(finding.where, finding.origin)
    links = {} if run is None or redaction.parts else editor_links((run,), frames)
    data["links"] = links
    return Document(
        title=_title(finding.kind, subject),
        what=subject.what,
        name=subject.name,
        model=subject.model,
        kind=finding.kind,
        head=findings.to_json(finding),
        run=None if run is None else _facts(run, redaction),
        contexts=() if redaction.removes_source else _contexts(frames, run, finding.warnings),
        sources=sources,
        data=data,
        steps=tuple({**asdict(step), "text": redaction.redact(step.text)} for step in subject.steps),
        versions=dict(subject.versions),
        commands=_commands(subject),
        remarks=(*_remarks(redaction), *_limits(run, data)),
        summaries=summaries,
        links=links,
    )


def _title(kind: FindingKind, subject: ReportSubject) -> str:
    """The verdict and the model, as the title of a window, whose end is often cut off."""
    name = f"{subject.what} {subject.name}"
    return f"{kind.title}: {subject.model}, {name}" if subject.model else f"{kind.title}: {name}"


def _contexts(
    frames: Sequence[ModelLine], run: RunDir | None, notes: Sequence[str]
) -> tuple[source_text.LaunchContext, ...]:
    """The model lines with their neighbours; a run not made on this account may name any file of this machine.

    Args:
        notes: that are told above these lines: what they say is not said again.
    """
    if run is not None and run.is_made_here:
        return tuple(map(source_text.context_of, frames))
    is_told = run is None or any(source_text.NOT_MADE_HERE in note for note in notes)
    why = "" if is_told else f"the run {source_text.NOT_MADE_HERE}: "
    remarks = (f"{why}files of this machine are not read", *[""] * len(frames))
    return tuple(map(source_text.recorded_line, frames, remarks))


def _facts(run: RunDir, redaction: Redaction) -> dict[str, Any]:
    info = run.info
    return {
        "name": run.path.name,
        "state": run.state.text,
        "detail": redaction.redact(info.exit.detail),
        "level": recording_settings.written_level(run.level),
        "device": run.manifest.device,
        "filters": str(SiteFilter(info.filters, info.module_filters, info.line_filters)),
        "started": info.started,
        "seconds": info.exit.seconds,
        "calls": calls_text(run),
        "launches": len(run.launches),
        "notes": list(redaction.redact_all(notes(run))),
    }


def _data(subject: ReportSubject, redaction: Redaction, source_index: dict[str, int]) -> dict[str, Any]:
    run, finding = subject.run, subject.finding
    if run is None:
        tables = Compactor(redaction, "").tables()
        return {**tables, "launches": [], "histograms": [], "graph": launch_graph.EMPTY, "comparison": None}
    verdict = subject.verdict
    damaged = frozenset(damage.key for damage in run.timeline.damages)
    compactor = Compactor(redaction, str(run.path))
    shown_launches = select_launches(run, finding, verdict)
    main = _Recording(run, shown_launches)
    others = [_Recording(other, main.described_by(other)) for other in subject.others]
    sampler = Sampler()
    launches = []
    for launch in named_first(shown_launches, finding):
        id_ = launch.id
        same = [other for other in others if id_ in other.launches]
        shown = merge_recordings(main.shown[id_], [other.shown[id_] for other in same])
        measured = [main, *same]
        entry = compactor.launch(shown, source_text.source_indices(launch.site, source_index))
        launch_marks = compact_launches.status_marks(run, launch, finding, verdict)
        launch_marks += [compact_launches.Mark.GUARD] if launch.key in damaged else []
        launch_marks += compact_launches.value_marks(shown["args"])
        if redaction.removes_tensors:
            launch_marks = [mark for mark in launch_marks if mark is not compact_launches.Mark.NEAR_OVERFLOW]
        entry["marks"] = [mark.value for mark in launch_marks]
        entry["worst"] = "" if redaction.removes_tensors else _worst(measured, launch)
        entry["histograms"] = [] if redaction.removes_tensors else _histograms(sampler, measured, launch)
        launches.append(entry)
    order = {launch.id: position for position, launch in enumerate(shown_launches)}
    launches.sort(key=lambda entry: order[entry["id"]])
    return {
        **compactor.tables(),
        "launches": launches,
        "histograms": sampler.histograms,
        "sample": ELEMENTS,
        "unread": sampler.unread,
        "graph": launch_graph.graph_of(run, redaction.redact_finding(finding), verdict),
        "comparison": None,
    }


def _add_comparison(data: dict[str, Any], comparison: Comparison, redaction: Redaction) -> None:
    """Adds what the comparison found to the launches, and what belongs to no single one."""
    compared = ComparedLaunches(comparison, redaction)
    wrong = {row.launch.id for row in comparison.rows if row.verdict in BAD}
    for entry in data["launches"]:
        entry["compared"] = compared.launch(entry["id"])
        if entry["id"] in wrong and compact_launches.Mark.GUILTY.value not in entry["marks"]:
            entry["marks"] = compact_launches.ordered((*entry["marks"], compact_launches.Mark.WRONG_VALUE.value))
    data["comparison"] = compared.shared({entry["id"] for entry in data["launches"]})


class _Recording:
    """A run and launches of it, as show.document describes them."""

    def __init__(self, run: RunDir, launches: Sequence[Launch]) -> None:
        self.run = run
        self.measurer = Measurer(run, BUDGET)
        self.launches = {launch.id: launch for launch in launches}
        self.shown = {shown["id"]: shown for shown in launch_documents(run, launches, self.measurer)}

    def described_by(self, other: RunDir) -> tuple[Launch, ...]:
        """The same launches of another run, where that has a record which this one may lack."""
        same = ((mine, launch) for mine in self.launches.values() if (launch := other.launches.find(mine.key)))
        return tuple(
            launch
            for mine, launch in same
            if (mine.site.id, mine.kernel) == (launch.site.id, launch.kernel)
            and (launch.is_measured or _has_more_tensors(launch, mine))
        )


def _has_more_tensors(launch: Launch, than: Launch) -> bool:
    return any(a.layout is None and launch.tensor(a.slot) is not None for a in than.args)


def _worst(recordings: Sequence[_Recording], launch: Launch) -> str:
    id_ = launch.id
    values = [largest_magnitude(r.launches[id_], r.measurer) for r in recordings]
    values += [hash_text(r.launches[id_]) for r in recordings if r.run.level == Level.HASH]
    return next((value for value in values if value != "-"), "")


def _histograms(sampler: Sampler, recordings: Sequence[_Recording], launch: Launch) -> list[int | None]:
    """For each argument its index in the sampler's histograms; trailing nulls are left out."""
    id_ = launch.id
    recorded = [(recording.run, recording.launches[id_].args) for recording in recordings]
    indices: list[int | None] = []
    for position in range(len(launch.args)):
        candidates = (sampler.histogram_index(run, args[position]) for run, args in recorded)
        indices.append(next((index for index in candidates if index is not None), None))
    while indices and indices[-1] is None:
        indices.pop()
    return indices


def _mark_warnings(data: Mapping[str, Any]) -> Iterator[str]:
    """Warnings about marked launches of a run that was not triaged."""
    for mark in (
        compact_launches.Mark.GUARD,
        compact_launches.Mark.NAN,
        compact_launches.Mark.INF,
        compact_launches.Mark.NEAR_OVERFLOW,
    ):
        marked = [launch for launch in data["launches"] if mark.value in launch["marks"]]
        if marked:
            first = marked[0]
            kernel, worst = data["sites"][first["site"]]["kernel"], f": {first['worst']}" if first["worst"] else ""
            launches = wording.pluralize(len(marked), "launch")
            yield f"{mark.value} in {launches}, first in launch {first['id']} {kernel}{worst}"


def _commands(subject: ReportSubject) -> tuple[tuple[str, str], ...]:
    lines = [(subject.command_line, f"repeats the {subject.what}")] if subject.command else []
    run = subject.run
    if run is not None:
        if subject.triage is not None:
            again = suggested_commands.run_again(run)
            lines += [(command, "repeats only the run that is shown here") for command in again]
        lines.append((suggested_commands.show(run), "shows its launches on the terminal"))
    return tuple(lines)


def _limits(run: RunDir | None, data: Mapping[str, Any]) -> Iterator[str]:
    shown = len(data["launches"])
    if run is not None and shown < len(run.launches):
        yield f"{shown} of {len(run.launches)} launches are shown: those around the guilty one, or the first ones"
    if run is not None and run.level == Level.HASH:
        yield "level hash records no values: the hashes of what launches wrote stand in their place"
    if data.get("unread"):
        unread = wording.pluralize(data["unread"], "tensor")
        yield f"{unread} without a histogram: a report reads at most {wording.byte_size(SAMPLE_BUDGET)} of tensors"


def _remarks(redaction: Redaction) -> tuple[str, ...]:
    remarks = []
    if redaction.removes_tensors:
        remarks.append(
            "left out: values of tensors, statistics, histograms, numbers passed to kernels or quoted, comparisons"
        )
    if redaction.removes_source:
        remarks.append("left out: source of kernels and of the model, stacks, sentences that may quote them")
    return tuple(remarks)
