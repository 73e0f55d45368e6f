"""Offsets between the clocks of machines, from collectives that no rank leaves before all have entered.

Those are reductions and exchanges between all ranks on the CPU: the root of a broadcast waits for nobody, nor does a
host for a GPU.

For a collective of ranks a and b of two machines, b's clock being ahead by d: b_begin - a_end <= d <= b_end - a_begin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.ranks.collectives import is_of_all_ranks, is_synchronous, waits
from aoti_debug.runs.ranks.ranks_run import RankRun
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey


@dataclass(frozen=True)
class ClockOffset:
    """The time by which the clock of a machine is ahead of the first machine's.

    Attributes:
        low, high: bounds in nanoseconds; None if the machines have no collective in common.
    """

    machine: str
    low: int | None = None
    high: int | None = None

    @property
    def is_known(self) -> bool:
        """True if there are bounds, and they do not contradict each other."""
        return self.low is not None and self.high is not None and self.low <= self.high

    @property
    def ns(self) -> int:
        """The middle of the bounds; 0 without any."""
        return (self.low + self.high) // 2 if self.low is not None and self.high is not None else 0


@dataclass(frozen=True)
class Clocks:
    """The clocks of all machines of a run of ranks.

    Attributes:
        offsets: by machine; that of the first is 0.
    """

    offsets: Mapping[str, ClockOffset]

    @property
    def unknown(self) -> tuple[str, ...]:
        """The machines whose clocks cannot be compared with the first one's."""
        return tuple(name for name, offset in self.offsets.items() if not offset.is_known)

    def common(self, rank: RankRun, unix_ns: int) -> int:
        """A time of a rank by the clock of the first machine, in nanoseconds since 1970."""
        offset = self.offsets.get(rank.machine)
        return unix_ns if offset is None else unix_ns - offset.ns


def clocks_of(ranks: Sequence[RankRun]) -> Clocks:
    """Compares the clocks of the machines of ranks that left a run.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    machines = list(dict.fromkeys(rank.machine for rank in ranks))
    if len(machines) < 2:
        return Clocks({name: ClockOffset(name, 0, 0) for name in machines})
    first, *others = machines
    spans = {rank.number: _collectives(rank) for rank in ranks}
    offsets = {first: ClockOffset(first, 0, 0)}
    for machine in others:
        here = [spans[rank.number] for rank in ranks if rank.machine == first]
        there = [spans[rank.number] for rank in ranks if rank.machine == machine]
        offsets[machine] = _offset(machine, here, there)
    return Clocks(offsets)


_Spans = Mapping[tuple[str, LaunchKey], tuple[int, int]]  # by program and wait


def _offset(machine: str, here: Sequence[_Spans], there: Sequence[_Spans]) -> ClockOffset:
    bounds = [
        (b[key][0] - a[key][1], b[key][1] - a[key][0]) for a in here for b in there for key in a.keys() & b.keys()
    ]
    if not bounds:
        return ClockOffset(machine)
    return ClockOffset(machine, max(low for low, _ in bounds), min(high for _, high in bounds))


def _collectives(rank: RankRun) -> _Spans:
    """When each collective that has ended was entered and left, in nanoseconds since 1970, by the rank's clock.

    A collective is two launches, one that begins it and another that waits: it is entered by the first.
    """
    run = None if rank.diagnosed is None else rank.diagnosed.run
    if run is None or run.journal is None or run.manifest.device != "cpu":
        return {}
    start = run.journal.header.start_unix_ns
    return {
        (rank.program, launch.key): (start + first.begin_ns, start + launch.end_ns)
        for first, launch in waits(run)
        if is_synchronous(first.site) and is_of_all_ranks(first.site)
        if launch.end_ns is not None and launch.fault is None
    }
