"""The home directory of everything that the commands make: runs, triages, repros and others, each kind in its folder.

aoti-debug/               AOTI_DEBUG_HOME=DIR names another one
  .aoti-debug             the marker: without it, a directory is somebody else's
  .gitignore              *
  runs/ triages/ …        a folder for each kind

It is not called `aoti_debug`: a folder of this name would hide the Python package from a program that starts beside it.
"""

from __future__ import annotations

import contextlib
import os
from enum import Enum
from pathlib import Path

from aoti_debug.base.abi import Variable
from aoti_debug.base.errors import UsageError

HOME = "aoti-debug"
SECOND_HOME = "aoti-debug-results"  # where the first name is taken, as by a checkout of this project
MARKER = ".aoti-debug"
_GITIGNORE = ".gitignore"
_TEXT = "This directory was made by aoti-debug. `aoti-debug list` says what is in it, `aoti-debug clean` deletes it.\n"


class ResultKind(Enum):
    """A kind of directories that commands make; the value is the name of its folder."""

    RUNS = "runs"
    TRIAGES = "triages"
    COMPARES = "compares"
    DIFFS = "diffs"
    REPLAYS = "replays"
    BISECTS = "bisects"
    MINIFIED = "minified"
    PROFILES = "profiles"
    MEMORY = "memory"
    COMPILED = "compiled"
    REPROS = "repros"
    BUNDLES = "bundles"

    @property
    def default(self) -> str:
        """The place for help texts: "aoti-debug/runs"."""
        return f"{HOME}/{self.value}"

    @property
    def earlier(self) -> Path:
        """The place in the working directory that earlier versions used."""
        return Path(f"aoti_debug_{self.value}")

    def place(self) -> Path:
        """The place where new directories of this kind are made: the environment's choice, or in the home.

        Raises:
            UsageError: the home has no place.
        """
        chosen = os.environ.get(Variable.DIR.value) if self is ResultKind.RUNS else None
        return Path(chosen) if chosen else home() / self.value

    def places(self) -> tuple[Path, ...]:
        """The places where directories of this kind are looked for, the first one first."""
        chosen = os.environ.get(Variable.DIR.value) if self is ResultKind.RUNS else None
        found = _home_or_none()
        own = Path(chosen) if chosen else None if found is None else found / self.value
        return (self.earlier,) if own is None else (own, self.earlier)


def home() -> Path:
    """The home; it need not exist.

    AOTI_DEBUG_HOME, the working directory if it is one, or else `aoti-debug` in it, or `aoti-debug-results` where
    that is something else.

    Raises:
        UsageError: the directory that AOTI_DEBUG_HOME names, or both others, are something else.
    """
    named = os.environ.get(Variable.HOME.value)
    candidates = [Path(named)] if named else [Path(HOME), Path(SECOND_HOME)]
    if not named and is_home(Path()):
        return Path()
    for path in candidates:
        if is_home(path) or _is_free(path):
            return path
    taken = " and ".join(str(path) for path in candidates)
    raise UsageError(
        f"{taken} {'is' if named else 'are'} not of aoti-debug: the marker {MARKER} is missing",
        hint=f"export {Variable.HOME.value}=DIR names a new or an empty directory",
    )


def is_home(path: Path) -> bool:
    """True if a directory has the marker."""
    return (path / MARKER).is_file()


def prepare(base: Path) -> None:
    """Makes a home and marks it, if a directory is the folder of a kind in it; does nothing for any other.

    Raises:
        OSError: it cannot be made.
    """
    if base.name not in _FOLDERS:
        return
    root, own = base.parent, _home_or_none()
    if not is_home(root) and own is not None and root.absolute() == own.absolute():
        mark(root)


def mark(root: Path) -> None:
    """Makes a directory a home.

    Raises:
        OSError: it cannot be made.
    """
    root.mkdir(parents=True, exist_ok=True)
    for name, text in ((MARKER, _TEXT), (_GITIGNORE, "*\n")):
        with contextlib.suppress(FileExistsError), (root / name).open("x") as file:  # another process made it
            file.write(text)


def remove_empty(root: Path) -> None:
    """Removes a home that holds nothing but its own two files.

    Raises:
        OSError: it cannot be removed.
    """
    if is_home(root) and {path.name for path in root.iterdir()} <= {MARKER, _GITIGNORE}:
        (root / _GITIGNORE).unlink(missing_ok=True)
        (root / MARKER).unlink()
        if root.resolve() != Path.cwd():
            root.rmdir()


def _home_or_none() -> Path | None:
    try:
        return home()
    except UsageError:
        return None


def _is_free(path: Path) -> bool:
    """True if there is nothing, or an empty directory."""
    try:
        return not any(path.iterdir())
    except FileNotFoundError:
        return not path.is_symlink()
    except OSError:
        return False


_FOLDERS = frozenset(kind.value for kind in ResultKind)
