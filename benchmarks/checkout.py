"""The checkout that benchmarks run from, and the environment in which their processes find its modules."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def python_path() -> str:
    """Returns the PYTHONPATH with which a process finds the modules of the checkout, wherever it runs."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def environment(**variables: str) -> dict[str, str]:
    """Returns the variables of this process, with others, for a process that finds the modules of the checkout.

    It keeps the bytecode of the modules, as that of an installed package is kept.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, **variables, "PYTHONPATH": python_path()}
