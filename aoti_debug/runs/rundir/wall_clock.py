"""The wall clock at the times of a journal."""

from __future__ import annotations

from bisect import bisect_right

from aoti_debug.runs.rundir.formats.journal import Journal
from aoti_debug.runs.rundir.formats.journal_records import ClockRecord


class WallClock:
    """Turns times of a journal into nanoseconds since 1970.

    The journal's own counter is off by some ten microseconds a second; calls on a device record the wall clock as they
    begin and end, and between two such records the time is interpolated.

    Attributes:
        is_recorded: False without such records: the start of the journal is the only time that is known.
    """

    def __init__(self, journal: Journal) -> None:
        known = sorted({(r.time_ns, r.unix_ns) for r in journal.records if isinstance(r, ClockRecord)})
        self.is_recorded = bool(known)
        self._known = known or [(0, journal.header.start_unix_ns)]
        self._times = [time for time, _ in self._known]

    def unix_ns(self, time_ns: int) -> int:
        """The wall clock at a time of the journal."""
        after = bisect_right(self._times, time_ns)
        time, unix = self._known[max(after - 1, 0)]
        if 0 < after < len(self._known):
            next_time, next_unix = self._known[after]
            return unix + (time_ns - time) * (next_unix - unix) // (next_time - time)
        return unix + time_ns - time
