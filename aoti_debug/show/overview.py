"""A run at a glance: how it ended and the table of its launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aoti_debug import wording
from aoti_debug.diagnosis.verdict import Proof, Verdict
from aoti_debug.manifest import Role
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.run_json import ExitKind
from aoti_debug.rundir.timeline import Argument, Launch, LaunchStatus
from aoti_debug.show import grid, text
from aoti_debug.show.fault import verdict_lines
from aoti_debug.show.grid import Column
from aoti_debug.show.measured import Measurer, worst_value

BUDGET = 256 << 20  # bytes of saved tensors that a table reads

COLUMNS = (
    Column("launch"),
    Column("kernel", least=24, share=3, folds=True, breaks_after=("_ ",)),
    Column("kind"),
    Column("arguments", least=16, share=2, folds=True, breaks_after=(" ", "_.")),
    Column("model line", least=14, share=1),
    Column("worst value", least=14, share=1, folds=True, breaks_after=(" ", "_")),
)


@dataclass(frozen=True)
class Excerpt:
    """Launches of which a table shows a part.

    Attributes:
        shown: the launches from `start` on.
        total: how many there are.
    """

    shown: Sequence[Launch]
    start: int
    total: int


def excerpt(launches: Sequence[Launch], limit: int | None, around: Launch | None) -> Excerpt:
    """At most `limit` launches: the first ones, or those that end soon after `around`."""
    if limit is None or len(launches) <= limit:
        return Excerpt(launches, 0, len(launches))
    start = 0
    if around is not None and around in launches:
        start = min(max(launches.index(around) + limit // 4 - limit, 0), len(launches) - limit)
    return Excerpt(launches[start : start + limit], start, len(launches))


def header(run: RunDir, width: int) -> list[str]:
    """What was run, how it ended, and what was recorded."""
    info = run.info
    timeline = run.timeline
    seconds = f" in {wording.duration(info.exit.seconds)}" if info.exit.seconds is not None else ""
    state = run.state.value + (f": {wording.first_line(info.exit.detail)}" if info.exit.detail else "")
    launched = (
        f"{wording.count(len(run.launches), 'launch')} in {wording.count(len(timeline.calls), 'call')}{seconds}"
        if run.journal
        else "no journal: level 0 records nothing"
        if run.level == 0
        else "no journal was written"
    )
    facts = [f"level {run.level}", info.device, f"torch {info.torch_version}", f"pid {info.pid}", info.started]
    if info.filters:
        facts.append(f"filter {' '.join(info.filters)}")
    lines = wording.wrapped(f"run {run.path.name}: {state}", width)
    lines += [*wording.flowed(facts, width, "  "), f"  {launched}"]
    return lines + [line for note in notes(run) for line in wording.wrapped(f"note: {note}", width, "  ")]


def notes(run: RunDir) -> list[str]:
    """What is missing from the records, and why."""
    found = [note.text for note in run.timeline.notes]
    found += [run.manifest.without_source] if run.manifest.without_source else []
    journal = run.journal
    if journal is not None and journal.header.blocks_reused:
        found.append("the journal was full and went on over its oldest launches: they are gone")
    if journal is not None and journal.damaged_blocks:
        damaged = wording.count(journal.damaged_blocks, "block")
        found.append(f"{damaged} of the journal cannot be read to the end: launches are missing")
    return found


def overview(run: RunDir, verdict: Verdict | None, part: Excerpt, width: int) -> list[str]:
    """Header, verdict and table.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    lines = header(run, width)
    if verdict is not None:
        lines += ["", *verdict_lines(verdict, width)]
    if part.shown:
        lines += ["", *table(run, verdict, part, width)]
    elif run.state is ExitKind.RUNNING:
        lines += ["", "nothing was launched yet"]
    return lines


def table(run: RunDir, verdict: Verdict | None, part: Excerpt, width: int) -> list[str]:
    """The launches of an excerpt; the one that is to blame, or those that may be, are marked in the last column.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    measurer = Measurer(run, BUDGET)
    rows = [
        [*_row(launch), _mark(launch, verdict) or _status(run, launch) or worst_value(launch, measurer)]
        for launch in part.shown
    ]
    lines = grid.lines(COLUMNS, rows, width)
    if measurer.exhausted:
        lines.append(
            f"worst values stop after {wording.byte_size(BUDGET)} of tensors; aoti-debug show LAUNCH reads the others"
        )
    if len(part.shown) < part.total:
        first, last = part.start + 1, part.start + len(part.shown)
        lines.append(f"launches {first} to {last} of {part.total}; --all shows them all")
    return lines


def _row(launch: Launch) -> list[str]:
    iteration = f" [{'.'.join(map(str, launch.loops))}]" if launch.loops else ""
    return [
        launch.id,
        launch.kernel + iteration,
        launch.site.kind.value,
        arguments(launch),
        text.model_line(launch.site.provenance),
    ]


def _mark(launch: Launch, verdict: Verdict | None) -> str:
    """ "GUILTY" or "suspect"; "" for a launch that nothing speaks against."""
    if verdict is None or launch not in verdict.suspects:
        return ""
    return "GUILTY" if verdict.proof is Proof.CERTAIN else "suspect"


def _status(run: RunDir, launch: Launch) -> str:
    """What is worth more than a value; "" for a launch that returned."""
    match launch.status:
        case LaunchStatus.OPEN:
            return "running" if run.state is ExitKind.RUNNING else "never returned"
        case LaunchStatus.FAILED:
            return "failed"
        case LaunchStatus.NOT_STARTED:
            return "empty grid"
        case LaunchStatus.RETURNED:
            return ""


def arguments(launch: Launch) -> str:
    """ "x, l_weight → buf0": tensors that were read, and those that were written; "?" where that is unknown."""
    tensors = [a for a in launch.args if _is_tensor(a)]
    read = [a.name + ("?" if a.role is Role.UNKNOWN else "") for a in tensors if a.role is not Role.OUT]
    written = [a.name for a in tensors if a.role in (Role.OUT, Role.INOUT)]
    left, right = (", ".join(dict.fromkeys(names)) for names in (read, written))
    return f"{left} → {right}".strip() if right else left


def _is_tensor(argument: Argument) -> bool:
    return argument.tensor is not None or (argument.role is not Role.NONE and argument.written)
