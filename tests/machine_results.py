"""The results of earlier lowerings about this machine: instruction sets that compile and run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from aoti_debug.machine import cache, compiler


def link_into(inductor_cache: Path) -> None:
    """Links the results that builds of this session have kept into another cache of Inductor's."""
    for known in (cache.directory() / f"inductor-{compiler.find_torch().version}").glob("??/*"):
        folder = inductor_cache / known.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # it is there, or lies on another disk
            os.link(known, folder / known.name)
