"""The checks of scripts, by the kind of the finding."""

from __future__ import annotations

from enum import Enum

from aoti_debug.runs.diagnosis.findings import Finding


class Check(str, Enum):
    """The expectation of a script."""

    SAME = "the compiled graph computes what eager computes"
    NAN = "no NaN comes of numbers"
    INFINITY = "no infinity comes of finite numbers"
    ENDS = "the compiled graph returns"
    BUILDS = "the graph compiles"
    PROMISED = "eager returns what the exported program promises"


_BY_KIND: dict[str, tuple[Check, ...]] = {
    "build_failure": (Check.BUILDS,),
    "wrong_value": (Check.SAME,),
    "differs": (Check.SAME,),
    "refused_by_eager": (),  # every check begins with what eager computes
    "fault": (Check.ENDS,),
    "hang": (Check.ENDS,),
    "contract": (Check.PROMISED, Check.ENDS, Check.SAME),
    "overrun": (Check.ENDS, Check.SAME),
    "uninitialised": (Check.SAME,),
}


def checks_of(finding: Finding) -> tuple[Check, ...]:
    """The checks that may show a finding, the likeliest first."""
    if finding.kind.value == "nonfinite":
        return (Check.NAN, Check.INFINITY) if "NaN" in finding.what else (Check.INFINITY, Check.NAN)
    return _BY_KIND[finding.kind.value]
