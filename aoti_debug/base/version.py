"""The version of aoti-debug: what its build has written beside this module, else that of the installed distribution."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

_SOURCES = (".py", ".cpp", ".cu", ".h")
UNKNOWN = "0+unknown"


def read(built: Path, distribution: str) -> str:
    """The version of a distribution; UNKNOWN for a checkout that was never installed.

    Args:
        built: the file that a build writes it into.
        distribution: its name.
    """
    try:
        return built.read_text().strip()
    except FileNotFoundError:
        from importlib import metadata  # needs the modules of e-mail: only a checkout waits for them

        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            return UNKNOWN


def source_hash(package: Path) -> str:
    """A hash of the sources of a package, those that are linked into it too: a checkout changes under one version."""
    digest = hashlib.sha256()
    for folder, below, names in os.walk(package, followlinks=True):
        below.sort()
        for name in sorted(name for name in names if name.endswith(_SOURCES)):
            file = Path(folder, name)
            digest.update(f"{file.relative_to(package)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


@functools.cache
def own_sources() -> str:
    """The hash of the sources of aoti-debug, for keys of caches."""
    return source_hash(Path(__file__).parents[1])


__version__ = read(Path(__file__).with_name("version.txt"), "aoti-debug")
