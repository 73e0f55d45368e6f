"""Writes HTML pages where the user wants them, or to their default place."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.files import atomic_write


def write(text: str, output: Path | None, default: Path) -> Path:
    """Writes a page, whole or not at all, over an older one; returns its path.

    Args:
        output: the file; None for `default`, whose folder must not be a link.

    Raises:
        UsageError: the file cannot be written.
    """
    path = output or default
    if output is None and path.parent.is_symlink():
        raise UsageError(f"{path.parent} is a link to another place", hint="name the file with -o")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write.write(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", hint="name another file with -o") from error
    return path
