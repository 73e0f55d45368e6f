"""All planted faults of benchmarks/origins.py."""

from __future__ import annotations

from collections.abc import Mapping

import planted_origins_calls as calls
import planted_origins_direct as direct
import planted_origins_divisions as divisions
import planted_origins_launches as launches
from planted_origins import Case, Program

_PARTS = (direct, launches, divisions, calls)
PROGRAMS: Mapping[str, Program] = {name: program for part in _PARTS for name, program in part.PROGRAMS.items()}
CASES: tuple[Case, ...] = tuple(case for part in _PARTS for case in part.CASES)
