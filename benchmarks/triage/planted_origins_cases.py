"""All planted faults of origins.py."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.triage import planted_origins_calls as calls
from benchmarks.triage import planted_origins_direct as direct
from benchmarks.triage import planted_origins_divisions as divisions
from benchmarks.triage import planted_origins_launches as launches
from benchmarks.triage.planted_origins import Case, Program

_PARTS = (direct, launches, divisions, calls)
PROGRAMS: Mapping[str, Program] = {name: program for part in _PARTS for name, program in part.PROGRAMS.items()}
CASES: tuple[Case, ...] = tuple(case for part in _PARTS for case in part.CASES)
