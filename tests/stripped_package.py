"""Packages without the C++ sources of their wrapper."""

from __future__ import annotations

import zipfile
from pathlib import Path

from aoti_debug.runs.rundir.run_directory import RunDir


def stripped(package: Path, output: Path) -> Path:
    """A copy without C++ sources."""
    with zipfile.ZipFile(package) as source, zipfile.ZipFile(output, "w") as target:
        for info in source.infolist():
            if not info.filename.endswith(".cpp"):
                target.writestr(info, source.read(info))
    return output


def order(run: RunDir) -> list[str]:
    return [launch.kernel for launch in run.launches]
