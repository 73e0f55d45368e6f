"""Statistics of a launch's arguments: recorded at level 2, or computed from the tensors saved at level 1; hashes."""

from __future__ import annotations

from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.formats import statistics
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.formats.stored_tensor import open_tensor
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Argument, Launch

HASH_ONLY = "only its hash was recorded"


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

    def measure(self, argument: Argument, phase: Phase) -> PhaseStatistics:
        """The statistics of an argument at a phase.

        Raises:
            RunDirError: a saved tensor is missing or damaged.
        """
        recorded, saved = argument.stats.get(phase), argument.files.get(phase)
        if recorded is not None and (recorded.statistics is not None or recorded.hash is None):
            reason = "uninitialised" if recorded.uninitialised else recorded.reason
            return PhaseStatistics(recorded.statistics, reason)
        if recorded is not None and (saved is None or not saved.path):
            return PhaseStatistics(None, HASH_ONLY)
        if saved is None:
            return PhaseStatistics(None)
        if phase is Phase.BEFORE and argument.role is Role.OUT:
            return PhaseStatistics(None, "uninitialised")
        if not saved.path:
            return PhaseStatistics(None, saved.reason)
        key = (*saved.hash, argument.layout.dtype if argument.layout else saved.path)
        if key not in self._measurements:
            if self._budget is not None:
                if saved.bytes > self._budget:
                    self.exhausted = True
                    return PhaseStatistics(None, "not read")
                self._budget -= saved.bytes
            self._measurements[key] = self._read(argument, phase)
        return self._measurements[key]

    def _read(self, argument: Argument, phase: Phase) -> PhaseStatistics:
        saved = argument.files[phase]
        if reason := self._run.missing_weight(saved):
            return PhaseStatistics(None, f"not read: {reason}")
        tensor = open_tensor(self._run.tensor_path(saved))
        try:
            return PhaseStatistics(statistics.tensor_statistics(tensor))
        except TypeError as error:
            return PhaseStatistics(None, str(error))


def phases(argument: Argument) -> tuple[Phase, ...]:
    """The phases to show by default: inputs before, outputs after, in-out arguments both."""
    if argument.role is Role.IN:
        return (Phase.BEFORE,)
    return (Phase.AFTER,) if argument.role is Role.OUT else (Phase.BEFORE, Phase.AFTER)


def largest_magnitude(launch: Launch, measurer: Measurer) -> str:
    """The largest magnitude of a launch, "41.9 in buf4"; NaN and infinities first: "3 NaN in buf4", "2 Inf in buf4".

    Written tensors come first; NaN and infinities that were only read are marked "(read)". The earlier contents of a
    written buffer do not count: they may be uninitialised. "-" where nothing was recorded.
    """
    written: list[tuple[str, Statistics]] = []
    read: list[tuple[str, Statistics]] = []
    for argument in launch.args:
        phase = Phase.BEFORE if argument.role is Role.IN else Phase.AFTER
        measured = measurer.measure(argument, phase).statistics
        if measured is not None:
            (written if phase is Phase.AFTER else read).append((argument.name, measured))
    for values, note in ((written, ""), (read, " (read)")):
        if bad := [(name, s) for name, s in values if s.n_nan]:
            name, s = max(bad, key=lambda item: item[1].n_nan)
            return f"{s.n_nan} NaN in {name}{note}"
        if bad := [(name, s) for name, s in values if s.n_pos_inf + s.n_neg_inf]:
            name, s = max(bad, key=lambda item: item[1].n_pos_inf + item[1].n_neg_inf)
            return f"{s.n_pos_inf + s.n_neg_inf} Inf in {name}{note}"
    finite = [(extreme, name) for name, s in written or read for extreme in (s.min, s.max) if extreme is not None]
    if not finite:
        return "-"
    value, name = max(finite, key=lambda item: abs(item[0]))
    return f"{value:.4g} in {name}"


def hash_text(launch: Launch) -> str:
    """The hash of the first tensor that a launch wrote, or if it wrote none, read: "#1f2e3d4c in buf4 and 1 more".

    "-" where none was recorded.
    """
    written: list[tuple[str, int]] = []
    read: list[tuple[str, int]] = []
    for argument in launch.args:
        phase = Phase.BEFORE if argument.role is Role.IN else Phase.AFTER
        recorded = argument.stats.get(phase)
        if recorded is not None and recorded.hash is not None:
            (written if phase is Phase.AFTER else read).append((argument.name, recorded.hash))
    hashes = written or read
    if not hashes:
        return "-"
    name, value = hashes[0]
    more = f" and {len(hashes) - 1} more" if len(hashes) > 1 else ""
    return f"{short_hash(value)} in {name}{more}"


def short_hash(value: int) -> str:
    """The first half of a hash: "#1f2e3d4c"."""
    return f"#{value:016x}"[:9]
