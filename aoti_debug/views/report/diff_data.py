"""The launches of two runs as compact plain data for the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.compare.diff.difference import Diff
from aoti_debug.compare.diff.document import document
from aoti_debug.compare.diff.pairs import PairRelation
from aoti_debug.compare.diff.text import OUTCOMES, explanation_text
from aoti_debug.package.manifest import Site
from aoti_debug.runs.rundir.timeline import Launch
from aoti_debug.views.report.compact_launches import Table

ONLY_A, ONLY_B = "only in A", "only in B"
_VERDICTS = (*(outcome.value for outcome in PairRelation), ONLY_A, ONLY_B)


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
        "verdicts": _VERDICTS,
        "meanings": [next((OUTCOMES[o] for o in OUTCOMES if o.value == verdict), "") for verdict in _VERDICTS],
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
        "verdict": _VERDICTS.index(row.verdict),
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
