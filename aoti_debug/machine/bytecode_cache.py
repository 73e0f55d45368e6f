"""Bytecode of the modules that the tool's processes import, for Pythons that keep none."""

from __future__ import annotations

import encodings
import os
import site
import sys

from aoti_debug.machine import cache_directory

KIND = "bytecode"
_KEPT = 4  # installations; torch's part of each takes 30 MB

_told: list[tuple[str | None, bool]] = []  # what Python was told, as long as it is told otherwise


def use() -> None:
    """Makes Python keep bytecode in the tool's cache, if it keeps none and was told no place for it.

    It keeps none where PYTHONDONTWRITEBYTECODE is set, or where it may not write beside the modules, if nobody has
    compiled them there. Nothing is kept where the cache has no place.
    """
    if sys.pycache_prefix is not None or not (_lacks_bytecode(encodings.__spec__) or _lacks_bytecode(__spec__)):
        return
    try:
        folder = _folder()
    except OSError:  # Python starts slowly, as it was told
        return
    _told.append((sys.pycache_prefix, sys.dont_write_bytecode))
    sys.pycache_prefix, sys.dont_write_bytecode = folder, False


def leave() -> None:
    """Undoes `use`: from now on Python does as it was told."""
    if _told:
        sys.pycache_prefix, sys.dont_write_bytecode = _told.pop()


def _lacks_bytecode(spec: object) -> bool:
    """True if a module that was imported from its source has no bytecode by now."""
    place = getattr(spec, "cached", None)
    return place is not None and not os.path.exists(place)


def _folder() -> str:
    """The folder of this installation.

    Python compares times and sizes of sources. Other sources with the same (images may give all files one time) have
    another folder: it is named by the time of the last change to what is installed, which no program can choose.

    Raises:
        OSError: it cannot be made.
    """
    name = f"{sys.implementation.cache_tag}-{max(map(_changed_at, _places())):x}"
    path = os.path.join(cache_directory.make(), KIND, name)
    if os.path.isdir(path):
        os.utime(path)  # what is used is kept
        return path
    from aoti_debug.machine import cache  # 60 modules more: once in an installation

    return str(cache.entry(KIND, name, lambda _: None, _KEPT))


def _places() -> list[str]:
    """Folders that change when something is installed: those of the standard library, of packages, and of the tool."""
    return [os.path.dirname(os.__file__), *site.getsitepackages(), os.path.dirname(os.path.dirname(__file__))]


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder).st_ctime_ns
    except OSError:  # Python names folders that may be missing
        return 0
