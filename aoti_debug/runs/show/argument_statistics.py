"""The values of a launch's arguments in a few words: the largest magnitude, NaN, hashes."""

from __future__ import annotations

from aoti_debug.base.abi import Phase
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.measurer import Measurer
from aoti_debug.runs.rundir.timeline import Argument, Launch


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
