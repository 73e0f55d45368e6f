"""The directories where builds on this machine leave Triton's files: machine code, and its PTX beside it."""

from __future__ import annotations

import getpass
import os
import re
import tempfile
from pathlib import Path

from aoti_debug.base.machine import cache

_NO_FILE_NAME = re.compile(r'[\\/:*?"<>|]')  # the characters that torch replaces in a user's name


def triton_caches() -> tuple[Path, ...]:
    """The directories of Triton's cache: of builds of this tool, of torch's own builds by device, of other programs."""
    own = os.environ.get("TRITON_CACHE_DIR")
    return (
        cache.directory() / "triton",
        *([Path(own)] if own else []),
        *sorted((_inductor_cache() / "triton").glob("*")),
        Path.home() / ".triton/cache",
    )


def _inductor_cache() -> Path:
    """The directory of Inductor's cache, as torch._inductor.runtime.cache_dir_utils.cache_dir names it."""
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if named:
        return Path(named).absolute()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user ID without a name
        user = f"uid_{os.getuid()}"
    return Path(tempfile.gettempdir()) / f"torchinductor_{_NO_FILE_NAME.sub('_', user)}"
