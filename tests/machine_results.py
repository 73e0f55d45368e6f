"""What earlier builds have found out about this machine: its compilers, instruction sets that compile and run."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from aoti_debug.base.machine import cache, compiler


def link_into(inductor_cache: Path) -> None:
    """Links the results that builds of this session have kept into another cache of Inductor's."""
    for known in (cache.directory() / f"inductor-{compiler.find_torch().version}").glob("??/*"):
        folder = inductor_cache / known.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # it is there, or lies on another disk
            os.link(known, folder / known.name)


def use_empty_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `home` the folder of caches for a test; of the session's, the results about compilers alone are copied."""
    compiler.find_compiler()
    known = cache.directory() / "compilers"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    shutil.copytree(known, cache.directory() / known.name)
