"""The processor of this machine, and the versions of Python, the system and installed packages."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata
from pathlib import Path

from aoti_debug.base.frozen import dataclass

CPUINFO = Path("/proc/cpuinfo")


def installed_versions(*packages: str) -> dict[str, str]:
    """The versions by name: "Python", "system", and those of the packages that are installed."""
    versions = {"Python": platform.python_version(), "system": platform.platform()}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


@dataclass(frozen=True)
class Processor:
    """A processor.

    Attributes:
        name: its model, such as "AMD EPYC 9654 96-Core Processor"; its architecture where Linux names none.
        features: the names of its instruction sets and other features ("avx2"); empty if Linux lists none.
    """

    name: str
    features: frozenset[str]


def this_processor() -> Processor:
    """Reads the name and the features of the first processor of this machine from /proc/cpuinfo."""
    try:
        lines = CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    first: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        first.setdefault(key.strip(), value.strip())
    features = first.get("flags", first.get("Features", ""))
    return Processor(first.get("model name", platform.machine()), frozenset(features.split()))
