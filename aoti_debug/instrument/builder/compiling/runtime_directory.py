"""The directory of the runtime's sources."""

from __future__ import annotations

from pathlib import Path

RUNTIME = Path(__file__).parents[3] / "runtime_shims"
