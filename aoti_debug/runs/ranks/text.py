"""A run of ranks as lines of text, a table and what can be said of all ranks, and as JSON: docs/ranks.schema.json."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.terminal_cells import Column
from aoti_debug.runs.ranks.first_failure import Clocks, RankFailure
from aoti_debug.runs.ranks.ranks_analysis import Agreement, Disagreement, Parting, RanksAnalysis, Waiting, shown_rank
from aoti_debug.runs.ranks.ranks_run import SECOND, End, RankRun
from aoti_debug.runs.show import text

_COLUMNS = (
    Column("rank", align_right=True),
    Column("state", min_width=14, share=1),
    Column("calls", align_right=True),
    Column("last launch", min_width=24, share=2),
    Column("model line", min_width=12, share=2),
    Column("ended", align_right=True),
    Column("machine", min_width=8, share=1, dropped_below=100),
)
_MAX_LINES = 12  # lines of one kind
FORMAT = 1  # of the JSON object


def ranks_lines(analysis: RanksAnalysis, width: int) -> list[str]:
    """A run of ranks in lines: table, first failure, waits, partings, agreement, commands."""
    lines = terminal_cells.fitted(title(analysis), width)
    rows = [row(rank, analysis) for rank in analysis.run.ranks]
    lines += ["", *terminal_cells.table(_COLUMNS, rows, width).lines_and_hidden(width)]
    for paragraph in paragraphs(analysis):
        lines += ["", *(line for sentence in paragraph for line in terminal_cells.fitted(sentence, width))]
    return [*lines, "", *_next(analysis)]


def title(analysis: RanksAnalysis) -> str:
    """The run in one line: name, number of ranks, how many ended in which way."""
    run, info = analysis.run, analysis.run.info
    restart = f", restart {info.restart}" if info.restart not in ("", "0") else ""
    return f"run {run.path.name}: {wording.pluralize(info.world_size, 'rank')}, {_states(run.recorded)}{restart}"


def titles() -> tuple[str, ...]:
    """The titles of the columns of the table."""
    return tuple(column.title for column in _COLUMNS)


def paragraphs(analysis: RanksAnalysis) -> list[list[str]]:
    """All that is said of the ranks together, in sentences: first failure, waits, partings, agreement, clocks."""
    found = [
        _failure(analysis),
        wait_lines(analysis),
        parting_lines(analysis),
        _agreement(analysis.agreement),
        _clocks(analysis.clocks),
    ]
    return [paragraph for paragraph in found if paragraph]


def wait_lines(analysis: RanksAnalysis) -> list[str]:
    """The ranks that wait, and for which others."""
    return [*map(_wait, analysis.waits), *_waits_outside(analysis.run.recorded)]


def parting_lines(analysis: RanksAnalysis) -> list[str]:
    """The ranks that launched something else than most others, and where they part from them."""
    return [_parting(parting) for parting in analysis.partings]


def disagreement_lines(found: Agreement) -> list[str]:
    """The tensors that should agree and do not."""
    return [_disagreement(one) for one in found.disagreements]


def _states(ranks: Iterable[RankRun]) -> str:
    ends = [rank.progress.end.value for rank in ranks]
    return ", ".join(f"{ends.count(end)} {end}" for end in dict.fromkeys(ends))


def row(rank: RankRun, analysis: RanksAnalysis) -> list[str]:
    """The cells of a rank in the table."""
    progress, failure = rank.progress, analysis.failure
    launch = progress.current or progress.last
    state = progress.end.value
    if failure is not None and failure.rank is rank:
        state = f"FIRST: {failure.what if progress.end in (End.TERMINATED, End.FINISHED, End.MISSING) else state}"
    elif progress.is_in_collective and progress.end is not End.FINISHED:
        state = f"waits, {state}"
    elif progress.outside is not None and progress.outside.is_collective:
        state = f"waits outside of the package, {state}"
    place = rank.reason if rank.diagnosed is None else progress.place
    line = "" if launch is None else text.model_line(launch.site.provenance)
    return [str(rank.number), state, str(progress.calls), place, line, _ended(rank, analysis), rank.machine]


def _ended(rank: RankRun, analysis: RanksAnalysis) -> str:
    """Seconds after the first rank ended: "+1.204 s"; "≥" where only its last record is known."""
    progress = rank.progress
    times = [
        analysis.clocks.common(other, other.progress.unix_ns)
        for other in analysis.run.recorded
        if other.progress.unix_ns is not None
    ]
    if progress.unix_ns is None or progress.end is End.RUNNING:
        return ""
    after = (analysis.clocks.common(rank, progress.unix_ns) - min(times)) / SECOND
    return f"{'' if progress.is_seen else '≥ '}+{after:.3f} s"


def _failure(analysis: RanksAnalysis) -> list[str]:
    failure = analysis.failure
    if failure is None:
        return []
    where = "" if failure.launch is None else f" in {failure.launch.id} {failure.launch.kernel}"
    lines = [f"FAULT {failure_text(failure)}{where}"]
    if failure.launch is not None and (line := text.model_line(failure.launch.site.provenance)):
        lines.append(f"  where    {line}")
    return [*lines, f"  because  {failure.why}"]


def failure_text(failure: RankFailure) -> str:
    """ "rank 2 failed first, probably: it hangs"."""
    certainty = "" if failure.is_certain else ", probably"
    return f"rank {failure.rank.number} failed first{certainty}: {failure.what}"


def _wait(wait: Waiting) -> str:
    missing = f"for {_numbered(wait.missing)}" if wait.missing else "though every rank has begun it"
    plural = "waits" if len(wait.ranks) == 1 else "wait"
    return f"{_numbered(wait.ranks)} {plural} in {wait.launch.id} {wait.launch.kernel} {missing}"


def _waits_outside(ranks: Iterable[RankRun]) -> list[str]:
    places = [(rank, rank.progress.outside) for rank in ranks]
    return [
        f"rank {rank.number} waits outside of the package, in {place.function}"
        for rank, place in places
        if place is not None and place.is_collective
    ]


def _numbered(numbers: Iterable[int]) -> str:
    """ "rank 2", "ranks 0, 1 and 3"."""
    texts = [str(number) for number in numbers]
    if len(texts) == 1:
        return f"rank {texts[0]}"
    return f"ranks {', '.join(texts[:-1])} and {texts[-1]}" if texts else "no rank"


def _parting(parting: Parting) -> str:
    said = []
    if parting.missing:
        said.append(f"it has not {_kernels(parting.missing)}")
    if parting.extra:
        said.append(f"it has {_kernels(parting.extra)}")
    others = _numbered(parting.like)
    return (
        f"rank {parting.rank} parts from {others} at {parting.call}.{parting.launch}: "
        f"{'; '.join(said) or 'the same launches in another order'}"
    )


def _kernels(kernels: Mapping[str, int]) -> str:
    return wording.join_truncated([name if times == 1 else f"{name} (× {times})" for name, times in kernels.items()], 4)


def _agreement(found: Agreement) -> list[str]:
    if not found.compared:
        return ["tensors: none to compare; at level 1, 2 or hash ranks record those that should agree"]
    lines = disagreement_lines(found)[:_MAX_LINES]
    if len(found.disagreements) > _MAX_LINES:
        lines.append(f"and {len(found.disagreements) - _MAX_LINES} more")
    if not lines:
        lines = [f"tensors: {found.compared} that should agree are equal bit for bit"]
    if found.sharded:
        lines.append(f"not compared, of another size on each rank: {wording.join_truncated(found.sharded, 4)}")
    return lines


def _disagreement(found: Disagreement) -> str:
    again = f", and in {found.times - 1} later launches" if found.times > 1 else ""
    where = f"{found.subject.value} {found.name}, {found.launch}{again}"
    if found.odd:
        return f"DIFFERS {_numbered(found.odd)} from {_numbered(found.groups[0])}: {where}"
    groups = " | ".join(_numbered(group) for group in found.groups)
    return f"DIFFERS {groups}: {where}"


def _clocks(clocks: Clocks) -> list[str]:
    lines = []
    for name, offset in clocks.offsets.items():
        if not offset.is_known:
            lines.append(f"note: nothing says how far the clock of {name} is apart: the order of its ranks is its own")
        elif offset.low != offset.high and offset.low is not None and offset.high is not None:
            error = wording.duration((offset.high - offset.low) / 2 / SECOND)
            lines.append(f"note: the clock of {name} is {offset.ns / SECOND:+.3f} s apart, ± {error}, by collectives")
    return lines


def _next(analysis: RanksAnalysis) -> list[str]:
    run = analysis.run
    number = shown_rank(run, analysis.failure).number
    return [f"next: {shlex.join(['aoti-debug', 'show', str(run.path / f'rank{number}')])}"]


def document(analysis: RanksAnalysis) -> dict[str, Any]:
    """The JSON object of a run of ranks."""
    run, failure, agreement = analysis.run, analysis.failure, analysis.agreement
    return {
        "format": FORMAT,
        "run": run.path.name,
        "path": str(run.path),
        "world_size": run.info.world_size,
        "run_id": run.info.run_id,
        "restart": run.info.restart,
        "started": run.info.started,
        "ranks": [_rank_document(rank, analysis) for rank in run.ranks],
        "first_failure": None
        if failure is None
        else {
            "rank": failure.rank.number,
            "launch": failure.launch and failure.launch.id,
            "kernel": failure.launch and failure.launch.kernel,
            "what": failure.what,
            "why": failure.why,
            "certain": failure.is_certain,
        },
        "waits": [
            {
                "launch": wait.launch.id,
                "kernel": wait.launch.kernel,
                "ranks": list(wait.ranks),
                "missing": list(wait.missing),
            }
            for wait in analysis.waits
        ],
        "partings": [
            {
                **json_data.to_data(parting),
                "missing": _kernel_times(parting.missing),
                "extra": _kernel_times(parting.extra),
            }
            for parting in analysis.partings
        ],
        "agreement": {
            "compared": agreement.compared,
            "sharded": list(agreement.sharded),
            "disagreements": [
                {
                    "subject": one.subject.value,
                    "name": one.name,
                    "launch": one.launch.partition(" ")[0],
                    "kernel": one.launch.partition(" ")[2],
                    "groups": [list(group) for group in one.groups],
                    "odd": list(one.odd),
                    "times": one.times,
                }
                for one in agreement.disagreements
            ],
        },
        "clocks": [json_data.to_data(offset) for offset in analysis.clocks.offsets.values()],
    }


def _kernel_times(kernels: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"kernel": kernel, "times": times} for kernel, times in kernels.items()]


def _rank_document(rank: RankRun, analysis: RanksAnalysis) -> dict[str, Any]:
    progress = rank.progress
    launch = progress.current or progress.last
    return {
        "rank": rank.number,
        "path": None if rank.diagnosed is None else str(rank.path),
        "machine": rank.machine or None,
        "end": progress.end.value,
        "what": progress.what or None,
        "reason": rank.reason or None,
        "calls": progress.calls,
        "launch": launch and launch.id,
        "kernel": launch and launch.kernel,
        "within": progress.current is not None,
        "waits": progress.is_in_collective or (progress.outside is not None and progress.outside.is_collective),
        "outside": progress.outside and progress.outside.function,
        "model_line": text.model_line(launch.site.provenance) if launch else None,
        "ended": None if progress.unix_ns is None else analysis.clocks.common(rank, progress.unix_ns) / 1e9,
        "ended_is_seen": progress.is_seen,
    }
