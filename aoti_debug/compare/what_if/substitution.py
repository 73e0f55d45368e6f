"""The launches whose results are to be replaced, and by what: `0.36=eager`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.rundir import run_directory

_HINT = "as 0.36=eager, 0.36=fp64, 0.36=OTHER.pt2 or 0.36=skip"


class ResultSource(str, Enum):
    """The origin of the results that replace those of a launch."""

    EAGER = "eager"  # the program, from the recorded inputs of the launch
    DOUBLE = "fp64"  # the same, computed in float64 and rounded at the end
    PACKAGE = "package"  # the paired launch of another package
    SKIP = "skip"  # nowhere: it is not launched


@dataclass(frozen=True)
class Substitution:
    """A launch, "0.36", and what replaces its results.

    Attributes:
        package: of Source.PACKAGE.
    """

    launch: str
    source: ResultSource
    package: Path | None = None

    def __str__(self) -> str:
        return f"{self.launch}={self.package or self.source.value}"


def parse(text: str) -> Substitution:
    """Parses LAUNCH=WHAT.

    Raises:
        UsageError: it is none.
    """
    launch, equals, what = text.partition("=")
    if not equals or not what:
        raise UsageError(f"--substitute {text} is not LAUNCH=WHAT", hint=_HINT)
    key = run_directory.parse_launch_id(launch)
    if what.endswith(".pt2"):
        return Substitution(str(key), ResultSource.PACKAGE, Path(what))
    if what not in (ResultSource.EAGER, ResultSource.DOUBLE, ResultSource.SKIP):
        raise UsageError(f"--substitute {text}: {what!r} is not known", hint=_HINT)
    return Substitution(str(key), ResultSource(what))
