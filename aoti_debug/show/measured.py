"""Statistics of a launch's arguments: as level 2 recorded them, or computed from the tensors that level 1 saved."""

from __future__ import annotations

from dataclasses import dataclass

from aoti_debug.abi import Phase
from aoti_debug.manifest import Role
from aoti_debug.rundir import load_tensors, statistics
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.statistics import Statistics
from aoti_debug.rundir.timeline import Argument, Launch


@dataclass(frozen=True)
class Measurement:
    """Attributes:
    statistics: None where there is none; `reason` says why, "" where nothing was recorded at all.
    """

    statistics: Statistics | None
    reason: str = ""


class Measurer:
    """Reads each saved tensor once: files of equal bytes and dtype share their statistics.

    Args:
        budget: bytes of files to read; None for no limit.
    """

    def __init__(self, run: RunDir, budget: int | None = None) -> None:
        self._run = run
        self._budget = budget
        self._known: dict[tuple[int, int, str], Measurement] = {}
        self.exhausted = False  # a file was left unread because the budget was spent

    def measure(self, argument: Argument, phase: Phase) -> Measurement:
        """Raises:
        RunDirError: a saved tensor is missing or damaged.
        """
        recorded = argument.stats.get(phase)
        if recorded is not None:
            reason = "uninitialised" if recorded.uninitialised else recorded.reason
            return Measurement(recorded.statistics, reason)
        saved = argument.files.get(phase)
        if saved is None:
            return Measurement(None)
        if phase is Phase.BEFORE and argument.role is Role.OUT:
            return Measurement(None, "uninitialised")
        if not saved.path:
            return Measurement(None, saved.reason)
        key = (*saved.hash, argument.layout.dtype if argument.layout else saved.path)
        if key not in self._known:
            if self._budget is not None:
                if saved.bytes > self._budget:
                    self.exhausted = True
                    return Measurement(None, "not read")
                self._budget -= saved.bytes
            self._known[key] = self._read(argument, phase)
        return self._known[key]

    def _read(self, argument: Argument, phase: Phase) -> Measurement:
        values, _ = load_tensors.load_values(self._run.tensor_path(argument.files[phase]))
        try:
            return Measurement(statistics.tensor_statistics(values))
        except TypeError as error:
            return Measurement(None, str(error))


def phases(argument: Argument) -> tuple[Phase, ...]:
    """When an argument is worth a look: inputs before, outputs after, what is both at both."""
    if argument.role is Role.IN:
        return (Phase.BEFORE,)
    return (Phase.AFTER,) if argument.role is Role.OUT else (Phase.BEFORE, Phase.AFTER)


def worst_value(launch: Launch, measurer: Measurer) -> str:
    """What stands out in a launch: "3 NaN in buf4", "2 Inf in buf4", else the largest magnitude, "41.9 in buf4".

    What the launch wrote comes first; NaN and infinities that it only read are marked "(read)". What a buffer that is
    written held before does not count: it may never have been set. "-" where nothing is known.
    """
    written: list[tuple[str, Statistics]] = []
    read: list[tuple[str, Statistics]] = []
    for argument in launch.args:
        phase = Phase.BEFORE if argument.role is Role.IN else Phase.AFTER
        found = measurer.measure(argument, phase).statistics
        if found is not None:
            (written if phase is Phase.AFTER else read).append((argument.name, found))
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
