"""What the fixture `built` gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aoti_debug import builder


@dataclass(frozen=True)
class Built:
    """A model of models.py: its exported program, its instrumented package (level 3), its plain twin."""

    program: Path
    package: Path
    plain: Path
    summary: builder.BuildSummary
