"""The first replays of CUDA graphs in which launches wrote NaN or infinities, as watchpoints and summaries saw them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.run_directory import RunDir


@dataclass(frozen=True)
class FirstReplay:
    """The first replay that a non-finite value was seen in, after a launch.

    Attributes:
        launch: of the call that the graph captured.
        argument: the tensor's name in the launch.
        value: NaN, inf or -inf.
        replay: its number, from 1.
    """

    launch: LaunchKey
    kernel: str
    argument: str
    value: float
    replay: int


def first_replays(run: RunDir) -> tuple[FirstReplay, ...]:
    """The first replay of each launch, argument and value, in the order of the replays and launches.

    Raises:
        RunDirError: the summaries of the run cannot be read.
    """
    if not any(call.replays is not None or call.capturing for call in run.timeline.calls):
        return ()
    first: dict[tuple[LaunchKey, str, str], FirstReplay] = {}
    for seen in (*_watched(run), *_summarised(run)):
        key = (seen.launch, seen.argument, str(seen.value))
        if key not in first or seen.replay < first[key].replay:
            first[key] = seen
    return tuple(sorted(first.values(), key=lambda seen: (seen.replay, seen.launch.call, seen.launch.launch)))


def _watched(run: RunDir) -> Iterator[FirstReplay]:
    for watchpoint in run.timeline.watchpoints:
        for hit in watchpoint.recorded:
            if hit.replay is not None and hit.phase is Phase.AFTER and not math.isfinite(hit.value):
                yield FirstReplay(hit.key, hit.site.kernel, hit.argument, hit.value, hit.replay)


def _summarised(run: RunDir) -> Iterator[FirstReplay]:
    from aoti_debug.runs.rundir import summaries  # reads archives of arrays; only a run with a CUDA graph needs it

    found = summaries.read(run)
    for series in () if found is None else found.series:
        if series.captured_call is None:
            continue
        launch = LaunchKey(CallKind.MODEL, series.captured_call, series.launch)
        for sample in series.samples:
            counts = {math.nan: sample.n_nan, math.inf: sample.n_pos_inf, -math.inf: sample.n_neg_inf}
            for value, count in counts.items():
                if count:
                    yield FirstReplay(launch, series.kernel, series.argument, value, sample.number)
