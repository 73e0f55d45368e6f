"""Debugger for PyTorch AOTInductor models: names the guilty kernel, saves its real inputs, replays it alone.

    import aoti_debug

    package = aoti_debug.build("model.pt2")  # or an ExportedProgram

The rest is the command line: `aoti-debug run`, `show`, `repro`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aoti_debug.builder.build import build as build

__version__ = "0.1.0"
__all__ = ["__version__", "build"]


def __getattr__(name: str) -> Any:
    """Imports `build` when it is used: the command line starts in a few milliseconds."""
    if name == "build":
        from aoti_debug.builder.build import build

        return build
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
