"""The version of aoti-debug: what its build has written beside this module, else that of the installed distribution."""

from __future__ import annotations

from pathlib import Path

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


__version__ = read(Path(__file__).with_name("version.txt"), "aoti-debug")
