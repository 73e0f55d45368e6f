"""Bytecode of the modules that the tool's processes import, for Pythons that keep none."""

from __future__ import annotations

import encodings
import os
import site
import sys

from aoti_debug.base.machine import cache_directory

KIND = "bytecode"
_KEPT = 4  # installations; what one of them imports takes 33 to 84 MB
_used: set[str] = set()  # folders that this process has made Python keep bytecode in


def use() -> None:
    """Makes Python keep bytecode in the tool's cache, if it keeps none and was told no place for it.

    It keeps none where PYTHONDONTWRITEBYTECODE is set, or where it may not write beside the modules, if nobody has
    compiled them there. Where the cache has no place either, none is kept.
    """
    if sys.pycache_prefix is not None:
        return
    if not (_lacks_bytecode(encodings.__spec__) or _lacks_bytecode(__spec__) or _never_keeps_torch()):
        return
    try:
        folder = os.path.join(cache_directory.make(), KIND, _name())
        is_new = not os.path.isdir(folder)
        os.makedirs(folder, exist_ok=True)
        os.utime(folder)  # what is used is kept
    except OSError:  # Python starts as slowly as it was told
        return
    _used.add(folder)
    sys.pycache_prefix, sys.dont_write_bytecode = folder, False
    if is_new:
        from aoti_debug.base.machine import cache  # its modules are imported once for an installation

        cache.delete_old(KIND, _KEPT)


def stop_writing() -> None:
    """From now on, bytecode in the tool's cache is only read: modules of a script would fill it."""
    if sys.pycache_prefix in _used:
        sys.dont_write_bytecode = True


def _lacks_bytecode(spec: object) -> bool:
    """True if there is no bytecode of a module that was imported just now."""
    place = getattr(spec, "cached", None)
    return place is not None and not os.path.exists(place)


def _never_keeps_torch() -> bool:
    """True if Python writes no bytecode, and nobody has compiled torch, most of what the tool's processes import."""
    if not sys.dont_write_bytecode:
        return False
    from importlib.util import cache_from_source

    sources = (os.path.join(folder, "torch", "__init__.py") for folder in sys.path)
    source = next(filter(os.path.exists, sources), None)
    return source is not None and not os.path.exists(cache_from_source(source))


def _name() -> str:
    """The name of this installation.

    Python takes bytecode for that of a source with the same path, time and size. In images that give all files one
    time, that may be another source: hence a name for each time at which something was installed here.
    """
    return f"{sys.implementation.cache_tag}-{max(map(_changed_at, _places())):x}"


def _places() -> list[str]:
    """The folders that change when something is installed: of the standard library, of packages, and of the tool."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    return [os.path.dirname(os.__file__), *site.getsitepackages(), package]


def _changed_at(folder: str) -> int:
    """The time of the last change in nanoseconds, which no program can choose; 0 for a folder that is not there."""
    try:
        return os.stat(folder).st_ctime_ns
    except OSError:
        return 0
