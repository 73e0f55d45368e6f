"""Broken contracts: a tensor that is not what the graph promised. The first run shows them."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.triage.contracts import contracts
from aoti_debug.triage.investigation import confirm_by_repro as replay
from aoti_debug.triage.investigation.investigation import Check, Investigation, Suspicion
from aoti_debug.triage.results.finding_kinds import CONTRACT


def look(investigation: Investigation) -> Suspicion | None:
    """The first broken contract of the first run; the others are warnings."""
    first = investigation.first
    broken = contracts.check(first.diagnosed.dataflow)
    if not broken:
        return None
    finding = broken[0]
    if first.verdict is not None:
        launch = first.verdict.launch
        where = f" in launch {launch.id} {launch.kernel}" if launch is not None else ""
        ended = f"the run ended in {first.verdict.what.partition(chr(10))[0]}{where}"
        finding = replace(finding, evidence=(*finding.evidence, ended))
    others = tuple(other.what for other in broken[1:])
    return Suspicion(replace(finding, warnings=(*finding.warnings, *others)), first.diagnosed)


CHECK = Check(CONTRACT, look, replay.same_values)
