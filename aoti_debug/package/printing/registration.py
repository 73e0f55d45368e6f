"""Registers the operators of prints and inspectors, so that programs that hold them can be loaded."""

from __future__ import annotations

import importlib


def register() -> None:
    """Registers `aoti_debug::print_` and `aoti_debug::inspect_`; imports torch."""
    importlib.import_module("aoti_debug.package.printing.inspectors")
