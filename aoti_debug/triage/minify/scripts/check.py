"""The checks of scripts, by the kind of the finding."""

from __future__ import annotations

from enum import Enum

from aoti_debug.runs.diagnosis.findings import Finding


class ScriptCheck(str, Enum):
    """The expectation of a script."""

    SAME = "the compiled graph computes what eager computes"
    NAN = "no NaN comes of numbers"
    INFINITY = "no infinity comes of finite numbers"
    ENDS = "the compiled graph returns"
    BUILDS = "the graph compiles"
    PROMISED = "eager returns what the exported program promises"


_BY_KIND: dict[str, tuple[ScriptCheck, ...]] = {
    "build_failure": (ScriptCheck.BUILDS,),
    "wrong_value": (ScriptCheck.SAME,),
    "differs": (ScriptCheck.SAME,),
    "refused_by_eager": (),  # every check begins with what eager computes
    "fault": (ScriptCheck.ENDS,),
    "hang": (ScriptCheck.ENDS,),
    "contract": (ScriptCheck.PROMISED, ScriptCheck.ENDS, ScriptCheck.SAME),
    "overrun": (ScriptCheck.ENDS, ScriptCheck.SAME),
    "uninitialised": (ScriptCheck.SAME,),
}


def checks_of(finding: Finding) -> tuple[ScriptCheck, ...]:
    """The checks that may show a finding, the likeliest first."""
    if finding.kind.value == "nonfinite":
        return (
            (ScriptCheck.NAN, ScriptCheck.INFINITY)
            if "NaN" in finding.what
            else (ScriptCheck.INFINITY, ScriptCheck.NAN)
        )
    return _BY_KIND[finding.kind.value]
