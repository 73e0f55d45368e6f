"""Replays one recorded launch alone. Copied into every repro; needs only torch, safetensors and numpy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .job import Job
    from .memory import LaunchArgument, Result, Storage
    from .process import main

__all__ = ["Job", "LaunchArgument", "Result", "Storage", "main"]

_MODULES = {
    "Job": ".job",
    "LaunchArgument": ".memory",
    "Result": ".memory",
    "Storage": ".memory",
    "main": ".process",
}


def __getattr__(name: str) -> Any:
    """Imports a name's module, and torch with it, when it is used: not every module needs torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name], __name__), name)
