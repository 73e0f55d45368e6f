"""The module of the process that a package runs in, and what a fork server imports for such processes."""

from __future__ import annotations

WORKER = "aoti_debug.runs.run.worker"
PRELOADED = ("torch", WORKER)
