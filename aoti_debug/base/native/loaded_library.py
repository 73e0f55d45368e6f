"""Functions of shared libraries that this process has loaded, without keeping the libraries loaded."""

from __future__ import annotations

import _ctypes
import ctypes
import os
from collections.abc import Iterable
from typing import Any

_MAPS = "/proc/self/maps"
_DELETED = " (deleted)"


def paths() -> set[str]:
    """The paths of the shared libraries in this process."""
    with open(_MAPS, encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.rstrip("\n").partition("/")[2].removesuffix(_DELETED) for line in maps if ".so" in line}
    return {f"/{path}" for path in paths}


def function(name: str, libraries: Iterable[str]) -> Any:
    """The function of a name, without arguments, in one of some libraries; None if none of them exports it.

    It may be called as long as whoever has loaded the library does not unload it. It returns an int.
    """
    for path in libraries:
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        except OSError:  # it is no library, or not loaded any more
            continue
        try:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            continue
        finally:
            _ctypes.dlclose(library._handle)
        return ctypes.CFUNCTYPE(ctypes.c_uint32)(address or 0)
    return None
