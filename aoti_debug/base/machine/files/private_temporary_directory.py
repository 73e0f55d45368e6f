"""Private directories in the temporary directory, where other users may make directories, too."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from aoti_debug.base.machine.files import private_directory


def make(name: str) -> Path:
    """Makes or finds NAME, or NAME-XXXXXXXX where that is not this user's own.

    Raises:
        OSError: it cannot be made.
    """
    folder = Path(tempfile.gettempdir())
    candidates = (folder / name, *sorted(folder.glob(f"{name}-*")))
    found = next((path for path in candidates if _make_closed(path)), None)
    return found or Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))


def _make_closed(path: Path) -> bool:
    """Makes one for this user alone; False for one that was ever open to others, and where none can be made."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    return (
        private_directory.is_private(path)
        and stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0
        and os.access(path, os.W_OK)
    )
