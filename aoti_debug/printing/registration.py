"""Registers the print operator, so that programs that hold it can be loaded."""

from __future__ import annotations

import importlib


def register() -> None:
    """Registers `aoti_debug::print_`; imports torch."""
    importlib.import_module("aoti_debug.printing.operator")
