"""The versions of Python, the system and installed packages."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata


def installed_versions(*packages: str) -> dict[str, str]:
    """The versions by name: "Python", "system", and those of the packages that are installed."""
    versions = {"Python": platform.python_version(), "system": platform.platform()}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
