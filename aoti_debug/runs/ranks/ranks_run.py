"""A run of ranks, opened for reading: the run of each rank with its diagnosis."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.open_diagnosed import open_diagnosed
from aoti_debug.runs.ranks.rank_progress import Progress, progress_of
from aoti_debug.runs.rundir import ranks_directory
from aoti_debug.runs.rundir.ranks_directory import RanksInfo


@dataclass(frozen=True)
class RankRun:
    """The run of one rank.

    Attributes:
        number: its rank.
        path: its run directory; it may be missing.
        diagnosed: None if it left no run that can be read.
        reason: why it left none; "" otherwise.
    """

    number: int
    path: Path
    diagnosed: DiagnosedRun | None
    reason: str = ""

    @cached_property
    def progress(self) -> Progress:
        """The launch that it came to, and its end.

        Raises:
            RunDirError: a record of the run cannot be read.
        """
        return progress_of(self.diagnosed)

    @property
    def machine(self) -> str:
        """The name of its machine; "" if it is not known."""
        rank = None if self.diagnosed is None else self.diagnosed.run.info.rank
        return "" if rank is None else rank.machine

    @property
    def program(self) -> str:
        """The hash of the generated code that it ran; "" if it left no run."""
        return "" if self.diagnosed is None else self.diagnosed.run.manifest.source_sha256


@dataclass(frozen=True)
class RanksRun:
    """A run of ranks.

    Attributes:
        ranks: all that were started, by number.
    """

    path: Path
    info: RanksInfo
    ranks: tuple[RankRun, ...]

    @property
    def recorded(self) -> tuple[RankRun, ...]:
        """The ranks that left a run."""
        return tuple(rank for rank in self.ranks if rank.diagnosed is not None)


def open_ranks(path: Path) -> RanksRun:
    """Opens the run of ranks in a directory. A rank whose run cannot be read is one without a run.

    Raises:
        RunDirError: the directory is not one of a run of ranks, or no rank left a run.
    """
    directory = ranks_directory.read(path)
    numbers = sorted({*range(directory.info.world_size), *directory.ranks})
    ranks = tuple(_open(number, directory.ranks.get(number), path / f"rank{number}") for number in numbers)
    opened = RanksRun(path, directory.info, ranks)
    if not opened.recorded:
        raise RunDirError(f"{path}: no rank has recorded a run", hint="was the package called, at a level above 0?")
    return opened


def _open(number: int, found: Path | None, path: Path) -> RankRun:
    if found is None:
        return RankRun(number, path, None, "it has not called the package")
    try:
        return RankRun(number, found, open_diagnosed(found))
    except RunDirError as error:
        return RankRun(number, found, None, str(error))
