"""One launch in full."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.abi import Phase
from aoti_debug.package.argument_values import Layout, Value
from aoti_debug.package.manifest import Certainty, Form, ModelLine, Provenance
from aoti_debug.package.origins import frames, own_nodes
from aoti_debug.runs.rundir.argument_statistics import HASH_ONLY, Measurer
from aoti_debug.runs.rundir.launch import Argument, Grid, Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show import text
from aoti_debug.runs.show.calls_and_replays import replay_fact
from aoti_debug.runs.show.text import phases, short_hash

MAX_STACK_LINES = 8
_LABEL = 13  # columns
_LIBRARY = re.compile(r".*/(?:site|dist)-packages/")


def model_lines(provenance: Provenance, width: int) -> list[str]:
    """The innermost lines of the model's own code; "line unknown" where there is none."""
    if provenance.certainty is Certainty.NONE:
        return [f"{_label('model')}line unknown"]
    if not provenance.source:
        return []
    first = provenance.source[0]
    lines = [f"{_label('model')}{first.place} in {first.function} ({provenance.certainty.value})"]
    groups = _by_file(provenance.source)
    same = groups.pop(first.file)
    if len(same) == 1:
        lines.append(terminal_cells.shorten_middle(f"{'':{_LABEL + 2}}{first.text.strip()}", width))
    else:
        lines += _numbered(same, width)
    for file, frames_of_file in groups.items():
        lines += [f"{'':{_LABEL}}{file}", *_numbered(frames_of_file, width)]
    return lines


def stack_lines(provenance: Provenance, width: int) -> list[str]:
    """The other lines of the traced stacks, at most MAX_STACK_LINES: the model's own files first, then libraries."""
    shown = {(frame.file, frame.line) for frame in provenance.source}
    traced = [frame for stack in provenance.stacks for frame in frames(stack) if (frame.file, frame.line) not in shown]
    groups = sorted(_by_file(traced).items(), key=lambda group: _is_library(group[0]))
    total = sum(len(group) for _, group in groups)
    lines: list[str] = []
    room = MAX_STACK_LINES
    for file, group in groups:
        if room > 0:
            lines += [f"{'':{_LABEL}}{_short(file)}", *_numbered(group[:room], width)]
        room -= len(group)
    if total > MAX_STACK_LINES:
        lines.append(f"{'':{_LABEL}}and {total - MAX_STACK_LINES} more (--all)")
    return _under("stack", lines)


def whole_stacks(provenance: Provenance) -> list[str]:
    """Every traced stack as torch recorded it, outermost call first."""
    lines: list[str] = []
    for stack in provenance.stacks:
        lines += ["  stack", *(f"    {line.rstrip()}" for line in stack.splitlines())]
    return lines


def _label(label: str) -> str:
    return f"  {label:<{_LABEL - 2}}"


def _under(label: str, lines: Sequence[str]) -> list[str]:
    return [f"{_label(label)}{lines[0][_LABEL:]}", *lines[1:]] if lines else []


def _by_file(model_lines: Iterable[ModelLine]) -> dict[str, list[ModelLine]]:
    """Distinct lines of each file by number; files in the order of their first line."""
    groups: dict[str, dict[int, ModelLine]] = {}
    for frame in model_lines:
        groups.setdefault(frame.file, {}).setdefault(frame.line, frame)
    return {file: [lines[number] for number in sorted(lines)] for file, lines in groups.items()}


def _numbered(lines: Sequence[ModelLine], width: int) -> Iterator[str]:
    digits = max(4, *(len(str(frame.line)) for frame in lines))
    for frame in lines:
        yield terminal_cells.shorten_middle(f"{'':{_LABEL}}{frame.line:>{digits}}  {frame.text.strip()}", width)


def _is_library(file: str) -> bool:
    return _LIBRARY.match(file) is not None


def _short(file: str) -> str:
    """The path below the directory of installed packages: "torch/nn/functional.py"."""
    return _LIBRARY.sub("", file)


_MAX_NODES = 6
_PHASES = {Phase.BEFORE: "before", Phase.AFTER: "after"}


def detail(
    run: RunDir, launch: Launch, width: int, choice: Sequence[Phase] | None, *, unfolded: bool = False
) -> list[str]:
    """A launch with all arguments and their values, grid and model lines.

    Args:
        choice: the phases to show of each argument; None: inputs before, outputs after, in-out arguments both.
        unfolded: with all FX nodes, also those that other launches compute, and the traced stacks in full.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    lines = [f"launch {launch.id}  {launch.kernel}"]
    lines += _facts(run, launch, width)
    lines += _provenance(run, launch, width, unfolded=unfolded)
    if launch.printed is not None:
        lines += ["  printed", *(f"    {line}" for line in launch.printed.splitlines())]
    for grid in launch.grids:
        lines += _grid(grid)
    measurer = Measurer(run)
    tensors = [a for a in launch.args if not _is_number(a)]
    folder = _folder(run, tensors, choice)
    if folder is not None:
        lines.append(f"  {'files':<11}{wording.short_path(folder)}/")
    if tensors:
        lines.append("  arguments")
    printed: set[tuple[str, Value]] = set()
    for argument in tensors:
        repeated = (argument.name, argument.after) in printed
        printed.add((argument.name, argument.after))
        shown = choice or phases(argument)
        lines += (
            [_repeated(argument)] if repeated else _argument(argument, measurer, shown, folder, launch.replay, width)
        )
    numbers = [a for a in launch.args if _is_number(a)]
    if numbers:
        lines.append("  numbers")
        right = max((len(_number(a)) for a in numbers if a.spec.form is not Form.STRING), default=0)
        lines += _aligned([(a.name, a.spec.ctype, f"{_number(a):>{right}}") for a in numbers])
    return lines


def _folder(run: RunDir, tensors: Sequence[Argument], choice: Sequence[Phase] | None) -> Path | None:
    """The folder with the saved tensors of a launch; None without any, or where they are in several folders."""
    saved = [a.files[phase] for a in tensors for phase in choice or phases(a) if phase in a.files]
    folders = {run.place_of(file).parent for file in saved if file.path}
    return folders.pop() if len(folders) == 1 else None


def _is_number(argument: Argument) -> bool:
    return argument.spec.form in (Form.SCALAR, Form.SCALAR_REF, Form.INTS, Form.STRING)


def _number(argument: Argument) -> str:
    return argument.spec.text if argument.spec.form is Form.STRING else text.value(argument.after)


def _aligned(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Names, C types and values in columns."""
    name, ctype = (max(terminal_cells.count(row[column]) for row in rows) for column in (0, 1))
    return [f"    {terminal_cells.pad(row[0], name)}  {terminal_cells.pad(row[1], ctype)}  {row[2]}" for row in rows]


def _facts(run: RunDir, launch: Launch, width: int) -> list[str]:
    site = launch.site
    status = {
        LaunchStatus.OPEN: "began and never returned",
        LaunchStatus.RETURNED: "returned",
        LaunchStatus.NOT_STARTED: "did not start: its grid is empty",
        LaunchStatus.FAILED: "failed",
    }[launch.status]
    if launch.fault is not None:
        status += f": {wording.first_line(launch.fault.text)} (code {launch.fault.code})"
    if launch.end_ns is not None:
        status += f", {wording.duration((launch.end_ns - launch.begin_ns) / 1e9)} on the host"
    facts = [
        ("status", status),
        ("kind", f"{site.kind.value}{f', {site.op}' if site.op else ''}"),
        ("called", f"call {launch.key.call} of {site.function}, thread {launch.thread}"),
    ]
    if site.line:
        facts.append(("wrapper", f"line {site.line}{f': {site.callee}' if site.callee != site.kernel else ''}"))
    if site.subgraph:
        facts.append(("subgraph", site.subgraph))
    if launch.loops:
        facts.append(("iteration", ", ".join(map(str, launch.loops))))
    if measured := replay_fact(launch):
        facts.append(("measured", measured))
    if run.manifest.device != "cpu":
        number = f"{site.stream}, " if run.manifest.stream_order is not None else ""
        facts.append(("stream", f"{number}slot {launch.stream_slot}, sequence {launch.sequence}"))
    return [line for label, fact in facts for line in text.labelled(label, fact, width, _LABEL)]


def _provenance(run: RunDir, launch: Launch, width: int, *, unfolded: bool) -> list[str]:
    provenance = launch.site.provenance
    lines = model_lines(provenance, width)
    post, pre = provenance.post_grad_nodes, provenance.pre_grad_nodes
    own = post if unfolded else own_nodes(launch.site, run.manifest.sites)
    lines += text.labelled("module", ", ".join(provenance.modules), width, _LABEL) if provenance.modules else []
    lines += _nodes("fx nodes", own, len(post), width, unfolded=unfolded)
    lines += _nodes("traced as", pre, len(pre), width, unfolded=unfolded)
    return lines + (whole_stacks(provenance) if unfolded else stack_lines(provenance, width))


def _nodes(label: str, nodes: Sequence[str], total: int, width: int, *, unfolded: bool) -> list[str]:
    shown = nodes if unfolded else nodes[:_MAX_NODES]
    more = f" and {total - len(shown)} more (--all)" if len(shown) < total else ""
    return text.labelled(label, f"{', '.join(shown)}{more}", width, _LABEL) if shown else []


def _grid(grid: Grid) -> list[str]:
    blocks = ", ".join(map(str, grid.grid))
    lines = [
        f"  {'grid':<11}({blocks}), {wording.pluralize(grid.num_warps, 'warp')}, {grid.shared_bytes} B shared memory"
    ]
    if grid.arguments:
        lines.append(f"  passed to {grid.kernel}")
        values = [text.value(argument.value) for argument in grid.arguments]
        right = max(map(len, values))
        lines += _aligned(
            [(a.name, a.ctype, f"{value:>{right}}") for a, value in zip(grid.arguments, values, strict=True)]
        )
    return lines


def _repeated(argument: Argument) -> str:
    return f"    {text.ROLES[argument.role]:<8}{argument.name}  the same tensor again"


def _argument(
    argument: Argument, measurer: Measurer, shown: Sequence[Phase], folder: Path | None, replay: int | None, width: int
) -> list[str]:
    role = text.ROLES[argument.role]
    layout = argument.layout
    words = [f"    {role:<8}{argument.name}"]
    words += [text.value(argument.after)] if layout is None else [text.shape(layout), layout.device]
    if layout is not None:
        words += _placement(argument, layout)
    if argument.spec.base and argument.spec.base != argument.name:
        words.append(f"of {argument.spec.base}")
    lines = terminal_cells.wrap_words(words, width, hang=" " * 12)
    for phase in shown:
        lines += _phase(argument, phase, measurer, folder, replay, width)
    return lines


def _placement(argument: Argument, layout: Layout) -> list[str]:
    if layout.kind != "strided":
        return []
    words = [f"strides [{','.join(map(str, layout.strides))}]"]
    if argument.tensor is not None:
        words.append(hex(argument.tensor.data_ptr))
    if layout.storage_offset or layout.storage_bytes != layout.bytes:
        words.append(f"at element {layout.storage_offset} of {wording.byte_size(layout.storage_bytes)}")
    return words


def _phase(
    argument: Argument, phase: Phase, measurer: Measurer, folder: Path | None, replay: int | None, width: int
) -> list[str]:
    measurement = measurer.measure(argument, phase)
    is_data = phase is Phase.AFTER or argument.has_data_before
    recorded, saved = argument.stats.get(phase) if is_data else None, argument.files.get(phase)
    label = f"      {_PHASES[phase]:<8}"
    words = [measurement.reason] if measurement.reason else []
    if measurement.statistics:
        words = text.statistics(measurement.statistics)
    if recorded is not None and recorded.hash is not None:
        words = [f"#{recorded.hash:016x}"] if measurement.reason == HASH_ONLY else [*words, short_hash(recorded.hash)]
    if recorded is not None and recorded.replay != replay:
        words = [*words, f"of replay {recorded.replay}"]
    lines: list[str] = []
    if words:
        lines += terminal_cells.wrap_words([label + words[0], *words[1:]], width, hang=" " * len(label))
    if recorded is not None and recorded.values and recorded.layout is not None:
        dtype = recorded.layout.dtype
        values = [text.format_element(number, dtype) for number in text.decode(recorded.values, dtype)]
        lines += terminal_cells.wrap_words(
            [f"[{', '.join(values)}]"] if len(values) < 2 else _list(values), width, " " * 14, " "
        )
    if saved is not None and saved.path:
        file = saved.path if folder is None else PurePosixPath(saved.path).name
        lines.append(terminal_cells.shorten_middle(f"{label if not lines else ' ' * len(label)}{file}", width))
    return lines


def _list(words: Sequence[str]) -> list[str]:
    return [f"[{words[0]},", *(f"{word}," for word in words[1:-1]), f"{words[-1]}]"]
