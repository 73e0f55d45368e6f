"""Selects the launches of a run that a page shows."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch
from aoti_debug.runs.show.overview import excerpt

MAX_LAUNCHES = 10_000  # that a page shows


def select_launches(run: RunDir, finding: Finding, verdict: Verdict | None) -> tuple[Launch, ...]:
    """The launches to show, in order: all, or MAX_LAUNCHES around the guilty one and those that the finding names."""
    named = named_launches(finding)
    around = None if finding.where is None else run.find_launch(finding.where.launch)
    if around is None and verdict is not None and verdict.suspects:
        around = verdict.suspects[0]
    part = excerpt(run.launches, MAX_LAUNCHES, around)
    kept = {launch.key for launch in (*part.shown, *map(run.find_launch, named)) if launch is not None}
    return tuple(launch for launch in run.launches if launch.key in kept)


def named_launches(finding: Finding) -> frozenset[str]:
    """Ids of the launches that a finding names."""
    places = (finding.where, finding.origin, *finding.chain)
    return frozenset(place.launch for place in places if place is not None and place.launch)


def named_first(launches: Sequence[Launch], finding: Finding) -> list[Launch]:
    """The launches that the finding names, then the others: they get their histograms before the budget is spent."""
    named = named_launches(finding)
    return sorted(launches, key=lambda launch: launch.id not in named)
