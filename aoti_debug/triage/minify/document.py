"""A minimisation as one JSON object (docs/minify.schema.json)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aoti_debug.runs.diagnosis import findings
from aoti_debug.triage.minify.minified import Minified, Smallest
from aoti_debug.triage.minify.scripts.triage_verdict import ScriptVerdict

FORMAT = 1


def document(found: Minified) -> dict[str, Any]:
    """The JSON object; times in seconds."""
    return {
        "format": FORMAT,
        "finding": findings.to_json(found.finding),
        "confirmed": found.is_confirmed,
        "smallest": None if found.smallest is None else _smallest(found.smallest),
        "refused": [{"name": item.name, "verdict": _verdict(item.verdict)} for item in found.refused],
        "trials": [asdict(trial) for trial in found.trials],
        "earlier": found.earlier,
        "notes": list(found.notes),
    }


def _smallest(smallest: Smallest) -> dict[str, Any]:
    return {
        **asdict(smallest),
        "script": str(smallest.script),
        "operators": list(smallest.operators),
        "verdict": _verdict(smallest.verdict),
        "program": None if smallest.program is None else str(smallest.program),
    }


def _verdict(verdict: ScriptVerdict) -> dict[str, Any]:
    return {"confirmation": verdict.confirmation.value, "text": verdict.text}
