"""A run at a glance: how it ended and the table of its launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.abi import Level
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import torch_settings
from aoti_debug.base.terminal_cells import Column
from aoti_debug.package import recording_settings
from aoti_debug.package.launch_traits import overlap_remark
from aoti_debug.package.manifest import Role
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.runs.diagnosis.output_values import OutputValues, output_values
from aoti_debug.runs.diagnosis.verdict import Proof, Verdict
from aoti_debug.runs.rundir.argument_statistics import Measurer
from aoti_debug.runs.rundir.launch import Argument, Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.rundir.timeline import Launches
from aoti_debug.runs.show.calls_and_replays import calls_text, replay_lines
from aoti_debug.runs.show.text import hash_text, largest_magnitude, place_columns
from aoti_debug.runs.show.watchpoint_hits import watch_lines

_IN = " in "


@dataclass(frozen=True)
class ValueCell:
    """A value and the tensor that it is in.

    Attributes:
        value: padded to the width of those of the other rows.
        name: of the tensor.
    """

    value: str
    name: str

    def __str__(self) -> str:
        return f"{self.value}{_IN}{self.name}"

    def fit(self, width: int) -> str:
        """At most `width` cells: the name loses its middle, the value is never cut."""
        return f"{self.value}{_IN}{terminal_cells.shorten_middle(self.name, width - len(self.value) - len(_IN))}"


def aligned(texts: Sequence[str]) -> list[str | ValueCell]:
    """Cells of a column: values are aligned on the right, texts without a tensor stay as they are."""
    parts = [text.partition(_IN) for text in texts]
    width = max((len(value) for value, _, name in parts if name), default=0)
    return [ValueCell(f"{value:>{width}}", name) if name else value for value, _, name in parts]


_ARROW = " → "
_COMMA = ", "
_MIN_NAME = 8  # cells of a shortened name; if that is still too long, names are left out and counted


@dataclass(frozen=True)
class ArgumentNames:
    """Names of the tensors that a launch reads and writes.

    Attributes:
        read: each once; "?" follows one whose role is unknown.
        written: each once.
    """

    read: tuple[str, ...]
    written: tuple[str, ...]

    def __str__(self) -> str:
        return _line(self.read, self.written)

    def fit(self, width: int) -> str:
        """At most `width` cells: long names lose their middles; if that is not enough, the last are counted."""
        read, written = len(self.read), len(self.written)
        while True:
            names = _first_names(self.read, read), _first_names(self.written, written)
            shortest = _MIN_NAME if max(read, written) > 1 else 1
            limit = _name_limit(names, width, shortest)
            if limit is not None or shortest == 1:
                return terminal_cells.shorten_middle(_shortened(names, limit or shortest), width)
            if read >= written:
                read -= 1
            else:
                written -= 1


def argument_names(launch: Launch) -> ArgumentNames:
    """The tensors that a launch reads and those that it writes."""
    tensors = [a for a in launch.args if _is_tensor(a)]
    read = [a.name + ("?" if a.role is Role.UNKNOWN else "") for a in tensors if _is_read(a)]
    written = [a.name for a in tensors if a.role in (Role.OUT, Role.INOUT)]
    return ArgumentNames(tuple(dict.fromkeys(read)), tuple(dict.fromkeys(written)))


def _is_read(argument: Argument) -> bool:
    return argument.has_data_before or argument.role is Role.UNKNOWN


def _is_tensor(argument: Argument) -> bool:
    return argument.tensor is not None or (argument.role is not Role.NONE and argument.written)


def _first_names(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    """The first names and the number of the others: "x", "y", "+3"."""
    return names if count == len(names) else (*names[:count], f"+{len(names) - count}")


def _name_limit(names: tuple[tuple[str, ...], tuple[str, ...]], width: int, shortest: int) -> int | None:
    """The longest name, of at least `shortest` cells, with which the line fits; None where even that is too long."""
    sizes = [terminal_cells.count(name) for side in names for name in side] or [0]
    room = width - (terminal_cells.count(_line(*names)) - sum(sizes))
    lengths = range(max(*sizes, shortest), shortest - 1, -1)
    return next((n for n in lengths if sum(min(size, n) for size in sizes) <= room), None)


def _shortened(names: tuple[tuple[str, ...], tuple[str, ...]], limit: int) -> str:
    return _line(*(tuple(terminal_cells.shorten_middle(name, limit) for name in side) for side in names))


def _line(read: tuple[str, ...], written: tuple[str, ...]) -> str:
    left, right = _COMMA.join(read), _COMMA.join(written)
    return f"{left}{_ARROW}{right}".strip() if right else left


BUDGET = 256 << 20  # bytes of saved tensors that a table reads

COLUMNS = (
    Column("launch", align_right=True),
    Column("kernel", min_width=16, share=2),
    Column("kind", dropped_below=120),
    Column("arguments", min_width=21, share=2),
)
_VALUE = Column("largest magnitude", min_width=17, share=1)


@dataclass(frozen=True)
class Excerpt:
    """The launches that a table shows.

    Attributes:
        shown: the launches from `start` on.
        total: the number of all launches.
    """

    shown: Sequence[Launch]
    start: int
    total: int


def excerpt(launches: Sequence[Launch], limit: int | None, around: Launch | None) -> Excerpt:
    """At most `limit` launches: the first ones, or those that end soon after `around`."""
    if limit is None or len(launches) <= limit:
        return Excerpt(launches, 0, len(launches))
    start = 0
    position = None
    if around is not None and isinstance(launches, Launches):
        position = launches.position(around.key)
    elif around is not None:
        position = next((i for i, x in enumerate(launches) if x.key == around.key), None)
    if position is not None:
        start = min(max(position + limit // 4 - limit, 0), len(launches) - limit)
    return Excerpt(launches[start : start + limit], start, len(launches))


def header(run: RunDir, width: int, outputs: OutputValues | None = None) -> list[str]:
    """The header of a run: name, outcome, environment, number of launches, notes.

    Args:
        outputs: of a run without a fault; None: they are not looked at.
    """
    info = run.info
    seconds = f", {wording.duration(info.exit.seconds)} in the model" if info.exit.seconds is not None else ""
    state = run.state.text + (f": {wording.first_line(info.exit.detail)}" if info.exit.detail else "")
    if outputs is not None and run.state is ExitKind.CLEAN:
        state = f"no fault{' recorded' if outputs.has_gaps else ''}; {outputs.text}"
    launched = (
        f"{wording.pluralize(len(run.launches), 'launch')} in {calls_text(run)}{seconds}"
        if run.journal
        else "no journal: level 0 records nothing"
        if run.level == 0
        else "no journal was written"
    )
    level = f"level {recording_settings.written_level(run.level)}"
    facts = [level, info.device, f"torch {info.torch_version}", f"pid {info.pid}", info.started]
    facts += torch_settings.described(info.torch_settings)
    if chosen := SiteFilter(info.filters, info.module_filters, info.line_filters):
        facts.append(str(chosen))
    lines = terminal_cells.fitted(f"run {run.path.name}: {state}", width)
    lines += [*terminal_cells.wrap_words(facts, width, "  "), f"  {launched}"]
    remarks = [*notes(run), *(() if outputs is None else outputs.notes)]
    return lines + [line for note in remarks for line in terminal_cells.fitted(f"  note: {note}", width)]


def notes(run: RunDir) -> list[str]:
    """Sentences about what is missing from the records, and why."""
    counted = Counter(note.text for note in run.timeline.notes)
    sentences = [text if count == 1 else f"{text} ({count} times)" for text, count in counted.items()]
    sentences += [run.manifest.without_source] if run.manifest.without_source else []
    sentences += [remark] if run.level and (remark := overlap_remark(run.manifest)) else []
    journal = run.journal
    if journal is not None and journal.header.blocks_reused:
        sentences.append("the journal was full: its oldest launches were overwritten")
    if journal is not None and journal.is_cut_off and not journal.damaged_blocks:
        sentences.append("the journal is cut off: launches may be missing")
    if journal is not None and journal.damaged_blocks:
        damaged = wording.pluralize(journal.damaged_blocks, "block")
        sentences.append(f"{damaged} of the journal cannot be read to the end: launches are missing")
    return sentences


def overview(run: RunDir, verdict: Verdict | None, part: Excerpt, width: int) -> list[str]:
    """Header, verdict or finding, and table.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    outputs = output_values(run) if verdict is None and run.state is not ExitKind.RUNNING else None
    lines = header(run, width, outputs)
    if verdict is not None:
        lines += ["", *_verdict_lines(verdict, width)]
    elif outputs is not None and outputs.what:
        lines += ["", *_nonfinite_lines(run, outputs, width)]
    if run.timeline.watchpoints:
        lines += ["", *watch_lines(run, width)]
    if part.shown:
        lines += ["", *table(run, verdict, part, width)]
    elif run.state is ExitKind.RUNNING:
        lines += ["", "nothing has been launched yet"]
    return lines


def _verdict_lines(verdict: Verdict, width: int) -> list[str]:
    from aoti_debug.runs.show.verdict import verdict_lines  # most runs end well

    return verdict_lines(verdict, width)


def _nonfinite_lines(run: RunDir, outputs: OutputValues, width: int) -> list[str]:
    from aoti_debug.runs.diagnosis.verdict_text import without_fault  # most outputs are finite
    from aoti_debug.runs.show.finding import all_finding_lines

    return all_finding_lines(replace(without_fault(run, outputs), warnings=()), width)  # the header has these


def table(run: RunDir, verdict: Verdict | None, part: Excerpt, width: int) -> list[str]:
    """The launches of an excerpt; the guilty one, or the suspects, are marked in the last column.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    measurer = Measurer(run, BUDGET)
    has_hashes_only = run.level == Level.HASH

    def recorded_value(launch: Launch) -> str:
        return hash_text(launch) if has_hashes_only else largest_magnitude(launch, measurer)

    values = [_mark(x, verdict) or _status(run, x) or _printed(x) or recorded_value(x) for x in part.shown]
    places = place_columns(launch.site.provenance for launch in part.shown)
    rows = [
        [*_row(launch), *places.cells(launch.site.provenance), value]
        for launch, value in zip(part.shown, aligned(values), strict=True)
    ]
    value = replace(_VALUE, title="hash") if has_hashes_only else _VALUE
    lines = list(terminal_cells.table((*COLUMNS, *places.columns, value), rows, width).lines_and_hidden(width))
    lines += replay_lines(run, part.shown, width)
    if measurer.exhausted:
        lines.append(
            f"magnitudes stop after {wording.byte_size(BUDGET)} of tensors; "
            f"aoti-debug show {part.shown[-1].id} reads those of that launch"
        )
    if measurer.missing:
        why, *others = measurer.missing.values()
        more = f", and {wording.pluralize(len(others), 'other file')} as well" if others else ""
        lines += terminal_cells.wrapped(f"not every value can be shown: {why}{more}", width, "")
    if len(part.shown) < part.total:
        first, last = part.start + 1, part.start + len(part.shown)
        lines.append(f"launches {first} to {last} of {part.total}; --all shows them all")
    return lines


def _row(launch: Launch) -> list[str | terminal_cells.Cell]:
    iteration = f" [{'.'.join(map(str, launch.loops))}]" if launch.loops else ""
    return [
        launch.id,
        launch.kernel + iteration,
        launch.site.kind.value,
        argument_names(launch),
    ]


def _mark(launch: Launch, verdict: Verdict | None) -> str:
    """ "GUILTY" or "suspect"; "" for other launches."""
    if verdict is None or launch not in verdict.suspects:
        return ""
    return "GUILTY" if verdict.proof is Proof.CERTAIN else "suspect"


def _printed(launch: Launch) -> str:
    """The first line of what a print operator printed; "" for other launches."""
    return "" if launch.printed is None else f"printed {wording.first_line(launch.printed)}"


def _status(run: RunDir, launch: Launch) -> str:
    """The status, which replaces the value; "" for a launch that returned."""
    match launch.status:
        case LaunchStatus.OPEN:
            return "running" if run.state is ExitKind.RUNNING else "never returned"
        case LaunchStatus.FAILED:
            return "failed"
        case LaunchStatus.NOT_STARTED:
            return "empty grid"
        case LaunchStatus.RETURNED:
            return ""
