"""Lines about a run beside its finding: its summary, and warnings about names that match nothing."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from typing import TYPE_CHECKING

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.abi import SaveStatus
from aoti_debug.base.machine import current_rank as machine_ranks
from aoti_debug.package.manifest import Form, Manifest
from aoti_debug.package.pt2.extract import UNCHANGED_PACKAGE_HINT
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.rundir import rescued_tensors
from aoti_debug.runs.rundir import summaries as run_summaries
from aoti_debug.runs.rundir.run_directory import RunDir

if TYPE_CHECKING:
    from aoti_debug.package.recording_settings import Unmatched
    from aoti_debug.runs.diagnosis.findings import Finding
    from aoti_debug.runs.run.runner import RunResult

_MAX_NAMES = 20


def unmatched_warning(unmatched: Sequence[Unmatched]) -> list[str]:
    """The warning in lines: patterns that match nothing, and the names that there are."""
    lines: list[str] = []
    for criterion, group in groupby(unmatched, lambda pattern: pattern.criterion):
        first, *others = group
        start = f"warning: no {criterion.noun} matches {', '.join(item.pattern for item in (first, *others))}"
        if first.missing:
            lines.append(f"{start}: the package holds {first.missing}")
            continue
        lines += [f"{start}; the package has:", *_listed(first.known)]
    return lines


def unmatched_watch_warning(package: Manifest, unmatched: Sequence[str]) -> list[str]:
    """The warning in lines: watched names that no launch has, and those that there are."""
    if not unmatched:
        return []
    tensors = dict.fromkeys(arg.name for site in package.sites for arg in site.args if arg.form <= Form.POINTER)
    kernels = sorted({site.kernel for site in package.sites})
    first = f"warning: no argument and no kernel is named {', '.join(unmatched)}; the package has:"
    return [first, *_listed(list(tensors)), *_listed(kernels)]


def uncalled_inspector_warning(package: Manifest, tag: str, ranks: str) -> list[str]:
    """The warning in lines: --tag or --ranks because of which an inspector is never called; none without."""
    if not machine_ranks.selected(machine_ranks.parse(ranks)):
        return [f"warning: the inspector is not called: this is rank {machine_ranks.current()}, not {ranks}"]
    from aoti_debug.runs.run import inspector  # few runs have one

    known = inspector.tags(package)
    if not tag or any(fnmatchcase(name, tag) for name in known):
        return []
    if not known:
        return [f"warning: no tag matches {tag}: there is no inspector in the model"]
    return [f"warning: no tag matches {tag}; the package has:", *_listed(known)]


def _listed(names: Sequence[str]) -> list[str]:
    lines = [f"  {name}" for name in names[:_MAX_NAMES]]
    return lines + ([f"  and {len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else [])


def missing_source_note(package: Manifest) -> str:
    """The note on a package without source: what is not recorded, and what to do about it; "" for others."""
    return f"note: {package.without_source}; for more, {UNCHANGED_PACKAGE_HINT}" if package.without_source else ""


def summary(result: RunResult, columns: int) -> list[str]:
    """The summary of a run in lines: launches, saved tensors, time, directory."""
    run = result.run
    facts = [
        f"{wording.pluralize(len(run.launches), 'launch')} in {wording.pluralize(len(run.timeline.calls), 'call')}"
        if run.level
        else "nothing recorded at level 0"
    ]
    facts += _saved(run)
    kept = {record.key for record in rescued_tensors.read(run.path) if record.path}
    facts += [f"inputs of {wording.pluralize(len(kept), 'launch')} rescued"] if kept else []
    if run.info.exit.seconds is not None:
        facts.append(f"{wording.duration(run.info.exit.seconds)} in the model")
    facts.append(f"{wording.duration(result.seconds)} in all")
    lines = terminal_cells.wrapped(", ".join(facts), columns)
    lines += place_lines(result, columns)
    if result.verdict is None and run.launches:
        has_summaries = any((run.path / name).exists() for name in run_summaries.FILES)
        lines.append(f"next: {suggested_commands.summaries(run) if has_summaries else suggested_commands.show(run)}")
    return lines


def _saved(run: RunDir) -> list[str]:
    files = (
        [saved for launch in run.launches for a in launch.args for saved in a.files.values()] if run.level == 1 else []
    )
    if not files:
        return []
    written = [saved for saved in files if saved.status is SaveStatus.WRITTEN]
    linked = sum(saved.status is SaveStatus.LINKED for saved in files)
    skipped = sum(saved.status is SaveStatus.SKIPPED for saved in files)
    facts = [f"{wording.pluralize(len(written) + linked, 'tensor')} saved"]
    if linked:
        facts.append(f"{linked} of them unchanged")
    if skipped:
        facts.append(f"{skipped} not saved")
    facts.append(f"{wording.byte_size(sum(saved.bytes for saved in written))} on disk")
    referred = {saved.hash: saved.bytes for saved in files if saved.status is SaveStatus.REFERRED}
    if referred:
        size = wording.byte_size(sum(referred.values()))
        facts.append(f"{wording.pluralize(len(referred), 'weight')} of {size} not copied")
    return facts


def place_lines(result: RunResult, columns: int) -> list[str]:
    """The notes on what is incomplete of a run, and its directory."""
    notes = list(dict.fromkeys(note.text for note in result.run.timeline.notes)) + (
        [result.lost] if result.lost else []
    )
    lines = [line for note in notes for line in terminal_cells.fitted(f"note: {note}", columns)]
    return [*lines, f"run: {wording.short_path(result.run.path)}"]


def observed_lines(run: RunDir, overrun: Finding | None, columns: int) -> list[str]:
    """The hits of watchpoints, and the first launch that wrote out of bounds."""
    lines: list[str] = []
    if run.timeline.watchpoints:
        from aoti_debug.runs.show.watchpoint_hits import watch_lines  # few runs have watchpoints

        lines += ["", *watch_lines(run, columns)]
    if overrun is not None:
        from aoti_debug.runs.show.finding import all_finding_lines  # only a finding needs it

        lines += ["", *all_finding_lines(overrun, columns)]
    return lines
