"""Statistics of arguments: recorded at level 2, or computed from the tensors saved at level 1, each read once."""

from __future__ import annotations

from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.rundir.formats import statistics
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.formats.stored_tensor import open_tensor
from aoti_debug.runs.rundir.launch import Argument
from aoti_debug.runs.rundir.run_directory import RunDir

HASH_ONLY = "only its hash was recorded"
UNINITIALISED = "not initialised"  # a buffer before the first launch that writes it


@dataclass(frozen=True)
class PhaseStatistics:
    """The statistics of one tensor at one phase.

    Attributes:
        statistics: None where there are none.
        reason: why there are none; "" where nothing was recorded at all.
    """

    statistics: Statistics | None
    reason: str = ""


class Measurer:
    """Measures arguments; each saved tensor is read once: files of equal bytes and dtype share their statistics.

    Args:
        budget: bytes of files to read; None for no limit.
    """

    def __init__(self, run: RunDir, budget: int | None = None) -> None:
        self._run = run
        self._budget = budget
        self._measurements: dict[tuple[int, int, str], PhaseStatistics] = {}
        self.exhausted = False  # a file was left unread because the budget was spent
        self.missing: dict[str, str] = {}  # why a file was not read: it is not there; by its path in the run

    def measure(self, argument: Argument, phase: Phase) -> PhaseStatistics:
        """The statistics of an argument at a phase.

        Raises:
            RunDirError: a saved tensor is damaged.
        """
        recorded, saved = argument.stats.get(phase), argument.files.get(phase)
        if phase is Phase.BEFORE and not argument.has_data_before and (recorded is not None or saved is not None):
            return PhaseStatistics(None, UNINITIALISED)
        if recorded is not None and (recorded.statistics is not None or recorded.hash is None):
            return PhaseStatistics(recorded.statistics, UNINITIALISED if recorded.uninitialised else recorded.reason)
        if recorded is not None and (saved is None or not saved.path):
            return PhaseStatistics(None, HASH_ONLY)
        if saved is None:
            return PhaseStatistics(None)
        if not saved.path:
            return PhaseStatistics(None, saved.reason)
        key = (*saved.hash, argument.layout.dtype if argument.layout else saved.path)
        if key not in self._measurements:
            if missing := self._run.missing_file(saved):
                self.missing[saved.path] = missing
                return PhaseStatistics(None, f"not read: {missing}")
            if self._budget is not None:
                if saved.bytes > self._budget:
                    self.exhausted = True
                    return PhaseStatistics(None, "not read")
                self._budget -= saved.bytes
            self._measurements[key] = self._read(argument, phase)
        return self._measurements[key]

    def _read(self, argument: Argument, phase: Phase) -> PhaseStatistics:
        tensor = open_tensor(self._run.tensor_path(argument.files[phase]))
        try:
            return PhaseStatistics(statistics.tensor_statistics(tensor))
        except TypeError as error:
            return PhaseStatistics(None, str(error))
