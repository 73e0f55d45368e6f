"""The rank that failed first, and why it is that one; the offsets between the clocks of machines that it depends on.

Those are reductions and exchanges between all ranks on the CPU: the root of a broadcast waits for nobody, nor does a
host for a GPU.

For a collective of ranks a and b of two machines, b's clock being ahead by d: b_begin - a_end <= d <= b_end - a_begin.

A rank that died of a signal, threw an exception or was killed comes before every rank that was ended for it: torchrun
ends the others with SIGTERM, and a rank within a collective throws when a peer is gone. Without such a rank the one
that is behind all others is to blame: they wait for it. Ranks that somebody ended while they worked have not failed.
Nor has one by itself that a thread aborted which calls no model: when a collective takes too long, NCCL aborts the
rank that hangs as well as those that wait for it (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, HeartbeatMonitor).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.diagnosis.diagnose import CRASHES
from aoti_debug.runs.ranks.ranks_run import SECOND, End, RankRun, is_of_all_ranks, is_synchronous, waits
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.launch import Launch

_OWN_FAILURES = frozenset({End.CRASHED, End.FAILED, End.KILLED, End.UNKNOWN, End.STOPPED})
_DISAPPEARED = frozenset({End.KILLED, End.UNKNOWN})
_HANGING = frozenset({End.STALLED, End.TERMINATED, End.RUNNING})
_NOT_FAILED = frozenset({End.FINISHED, End.RUNNING, End.UNKNOWN, End.MISSING})


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


@dataclass(frozen=True)
class RankFailure:
    """The rank that failed first.

    Attributes:
        launch: the launch that it failed or hangs in; None between launches.
        what: "SIGSEGV (Segmentation fault)", "it hangs".
        why: the reason why it is this rank, one sentence.
        is_certain: False if another rank may have failed before it.
    """

    rank: RankRun
    launch: Launch | None
    what: str
    why: str
    is_certain: bool


def first_failure(ranks: Sequence[RankRun], clocks: Clocks) -> RankFailure | None:
    """The rank that failed first; None if none has failed, or all wait for each other.

    Args:
        ranks: all of them; one without a run may be to blame, too.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    ends = [rank.progress.end for rank in ranks]
    if all(end in _NOT_FAILED for end in ends):
        return None
    found = _first(ranks, clocks)
    return found and replace(found, is_certain=found.is_certain and End.MISSING not in ends)


def _first(ranks: Sequence[RankRun], clocks: Clocks) -> RankFailure | None:
    own = [rank for rank in ranks if _is_own_failure(rank)]
    ended = [rank.progress.end for rank in ranks if rank.progress.end not in (End.FINISHED, End.MISSING)]
    if own and len(ended) > 1 and all(end in _DISAPPEARED for end in ended):  # somebody killed them all
        found = _behind(ranks) or _earliest(own, ranks, clocks)
        return found and replace(found, is_certain=False)
    if own:
        return _earliest(own, ranks, clocks)
    return _behind(ranks) or _stuck_outside(ranks) or _left_early(ranks, clocks) or _in_collective(ranks, clocks)


def _is_own_failure(rank: RankRun) -> bool:
    """True if a rank failed by itself; within a collective it may suffer from another one, except of a bad access."""
    progress = rank.progress
    if progress.is_aborted_elsewhere and progress.idle_ns > SECOND:
        return False
    return progress.end in _OWN_FAILURES and (not progress.is_in_collective or progress.signal in CRASHES)


def _earliest(failed: Sequence[RankRun], ranks: Sequence[RankRun], clocks: Clocks) -> RankFailure | None:
    timed = _by_time(failed, clocks)
    if not timed:
        return None
    when, rank = timed[0]
    progress = rank.progress
    launch = progress.current
    if len(timed) == 1:
        why = "it is the only rank that failed by itself"
        victims = sum(other.progress.end is End.TERMINATED for other in ranks)
        why += f"; {wording.pluralize(victims, 'rank')} ended by SIGTERM afterwards" if victims else ""
        return RankFailure(rank, launch, progress.what or progress.end.value, why, progress.end is not End.UNKNOWN)
    later, second = timed[1]
    apart = wording.duration((later - when) / SECOND)
    why = f"it failed {apart} before rank {second.number}, the next one"
    is_certain = rank.progress.is_seen and second.progress.is_seen
    machines = {rank.machine, second.machine} & set(clocks.unknown)
    if machines:
        names = wording.join_truncated(sorted(machines), 2)
        why += f", by clocks that may differ: nothing says how far that of {names} is apart"
        is_certain = False
    return RankFailure(rank, launch, progress.what or progress.end.value, why, is_certain)


def _by_time(failed: Sequence[RankRun], clocks: Clocks) -> list[tuple[int, RankRun]]:
    timed = [(clocks.common(rank, ns), rank) for rank in failed if (ns := rank.progress.unix_ns) is not None]
    return sorted(timed, key=lambda pair: (pair[0], pair[1].number))


def _in_collective(ranks: Sequence[RankRun], clocks: Clocks) -> RankFailure | None:
    """The first rank that failed within a collective which no other rank was late for."""
    found = _earliest([rank for rank in ranks if rank.progress.end in _OWN_FAILURES], ranks, clocks)
    missing = sum(rank.progress.end is End.MISSING for rank in ranks)
    others = f"{wording.pluralize(missing, 'rank')} left no run" if missing else "no rank is behind"
    return found and replace(found, why=f"{found.why}; it was in a collective, and {others}", is_certain=False)


def _behind(ranks: Sequence[RankRun]) -> RankFailure | None:
    """The one rank that is behind all others of the same program and that they waited for; None if there is none."""
    if len({rank.program for rank in ranks if rank.diagnosed is not None}) != 1 or len(ranks) < 2:
        return None
    ordered = sorted(ranks, key=lambda rank: rank.progress.position)
    rank, following = ordered[0], ordered[1]
    progress = rank.progress
    if progress.position >= following.progress.position:
        return None
    has_stopped = progress.end not in (End.TERMINATED, End.MISSING) or progress.idle_ns > SECOND
    if not has_stopped and not any(_waited(other) for other in ranks if other is not rank):
        return None  # all worked until somebody ended them
    waiting = sum(other.progress.is_in_collective for other in ranks if other is not rank)
    why = f"it is behind every other rank: the next one is rank {following.number}, {following.progress.place}"
    if waiting:
        why += f"; {wording.pluralize(waiting, 'rank')} {'waits' if waiting == 1 else 'wait'} in a collective"
    what = rank.reason or progress.what or progress.end.value
    if progress.end in _HANGING or progress.is_aborted_elsewhere:
        what = "it hangs" if has_stopped else "it is late"
    elif progress.end is End.FINISHED:
        what = "it ended before the others"
    was_ended = progress.end is End.TERMINATED or progress.is_aborted_elsewhere
    is_hanging = progress.end is End.STALLED or (was_ended and progress.idle_ns > SECOND)
    return RankFailure(rank, progress.current, what, why, is_hanging or progress.end is End.FINISHED)


def _waited(rank: RankRun) -> bool:
    """True if a rank waited in a collective in vain: until it threw, or for a while."""
    progress = rank.progress
    return progress.is_in_collective and (progress.end in (End.FAILED, End.STALLED) or progress.idle_ns > SECOND)


def _stuck_outside(ranks: Sequence[RankRun]) -> RankFailure | None:
    """The one rank that was ended outside of the package after a while in which it did not wait for others."""
    stuck = [rank for rank in ranks if _is_stuck(rank)]
    if len(stuck) != 1:
        return None
    progress = stuck[0].progress
    assert progress.outside is not None
    idle = wording.duration(progress.idle_ns / SECOND)
    where = f"it was in {progress.outside.function}, outside of the package and of collectives"
    why = f"{where}, {idle} after its last launch"
    return RankFailure(stuck[0], None, "it hangs outside of the package", why, is_certain=False)


def _is_stuck(rank: RankRun) -> bool:
    place = rank.progress.outside
    is_busy = place is not None and not place.is_collective and not place.is_leaving
    return is_busy and rank.progress.idle_ns > SECOND


def _left_early(ranks: Sequence[RankRun], clocks: Clocks) -> RankFailure | None:
    """The first rank whose process ended in order while others had to be ended: an exception of the program itself."""
    finished = _by_time([rank for rank in ranks if rank.progress.end is End.FINISHED], clocks)
    if not finished or not any(rank.progress.end is End.TERMINATED for rank in ranks):
        return None
    rank = finished[0][1]
    why = "its process was the first that ended, outside of the package, while others had to be ended"
    return RankFailure(rank, None, "it ended before the others", why, is_certain=False)
