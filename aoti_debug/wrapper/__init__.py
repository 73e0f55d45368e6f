"""Reads the C++ that AOTInductor generates: its launches, their arguments, their kernels.

Everything here parses texts; no file is opened.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aoti_debug.wrapper.analysis import SHIM_HEADERS, Analysis, analyse, kernels_of
    from aoti_debug.wrapper.helpers import helpers_of
    from aoti_debug.wrapper.kernels import shared_cubins
    from aoti_debug.wrapper.operators import declared_shims, shim_operators
    from aoti_debug.wrapper.proxy import targets as proxy_targets

__all__ = [
    "SHIM_HEADERS",
    "Analysis",
    "analyse",
    "declared_shims",
    "helpers_of",
    "kernels_of",
    "proxy_targets",
    "shared_cubins",
    "shim_operators",
]

_PLACES = {
    "SHIM_HEADERS": ("analysis", "SHIM_HEADERS"),
    "Analysis": ("analysis", "Analysis"),
    "analyse": ("analysis", "analyse"),
    "declared_shims": ("operators", "declared_shims"),
    "helpers_of": ("helpers", "helpers_of"),
    "kernels_of": ("analysis", "kernels_of"),
    "proxy_targets": ("proxy", "targets"),
    "shared_cubins": ("kernels", "shared_cubins"),
    "shim_operators": ("operators", "shim_operators"),
}


def __getattr__(name: str) -> Any:
    """Imports the parser when it is used: what only reads runs needs the traits of launches (launch_traits.py)."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
