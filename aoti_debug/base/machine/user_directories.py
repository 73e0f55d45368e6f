"""The directories for this user's own files, as the XDG Base Directory Specification names them."""

from __future__ import annotations

import os

_NAME = "aoti_debug"


def cache() -> str:
    """The path for what can be made again."""
    return os.path.join(_base("XDG_CACHE_HOME", "~/.cache"), _NAME)


def state() -> str:
    """The path for what is remembered between starts."""
    return os.path.join(_base("XDG_STATE_HOME", "~/.local/state"), _NAME)


def _base(variable: str, default: str) -> str:
    named = os.environ.get(variable, "")
    return named if named.strip() else os.path.expanduser(default)
