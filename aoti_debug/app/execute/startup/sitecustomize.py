"""Executed by Python before the script: prepares the replacements, and hides that it was there.

PYTHONPATH is again what the user has set, and a sitecustomize of the user's own is executed as always.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_USERS = "_AOTI_DEBUG_PYTHONPATH"


def _restore_paths() -> None:
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]
    users = os.environ.pop(_USERS, None)
    if users is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = users


def _prepare() -> None:
    if importlib.util.find_spec("aoti_debug") is None:  # it is not installed: it was started from its checkout
        sys.path.append(str(_HERE.parents[3]))
    import aoti_debug
    from aoti_debug.app.execute import replacements

    # pytest warns of a plugin that was imported before it, unless its docstring says this
    aoti_debug.__doc__ = f"{aoti_debug.__doc__}\n\nPYTEST_DONT_REWRITE"
    replacements.install()


def _execute_users_own() -> None:
    spec = PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_restore_paths()
_prepare()
_execute_users_own()
