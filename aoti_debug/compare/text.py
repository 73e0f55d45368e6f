"""A comparison as text: the table of launches, the first wrong one in detail, the coverage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.terminal_cells import Cell, Column, Sentence
from aoti_debug.compare.comparison import PRIVATE, SILENT, Comparison, Row
from aoti_debug.compare.measure.output_errors import OutputError, ReturnedElement, is_exact
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.protocol.measurement import LARGEST, LEAST, OF_ZERO, Advance, Element, Measurement, StateChange
from aoti_debug.compare.suspects import Suspect
from aoti_debug.package.argument_values import unravel
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.show.text import UNKNOWN, place_columns

MAX_SUSPECTS = 6
_MAX_DOUBTFUL = 3
_MAX_TOLERATED = 2
_SAME = "same"  # model line as above
_FAR, _FAR_ULP = 1e-3, 64.0  # a relative error that is worth a note is larger than both
SAME_CODE = ", same code"  # behind the verdict on a launch that is not compared independently
_LAUNCH = (
    Column("launch", align_right=True),
    Column("kernel", min_width=16, share=2),
)
_ERRORS = (
    Column("local", align_right=True),
    Column("inherited", align_right=True),
    Column("eager", align_right=True, dropped_below=110),
    Column("ULP median", align_right=True, dropped_below=140),
    Column("ULP max", align_right=True, dropped_below=120),
    Column("rtol", align_right=True, dropped_below=140),
    Column("atol", align_right=True, dropped_below=140),
    Column("condition", align_right=True, dropped_below=140),
)
_METRIC = Column("metric", align_right=True)
_VERDICT = Column("verdict", min_width=13, share=1)
LEGEND = (
    "local: error of the launch from its own inputs, against float64; inherited: against the whole program in eager; "
    "both relative, root mean square"
)

AGAINST_SOURCES = (LaunchVerdict.MATCHES_SOURCE, LaunchVerdict.DIFFERS_FROM_SOURCE)
SOURCES_LEGEND = (
    "there is no program: the source of each kernel was run in another way than its machine code; a wrong lowering "
    "cannot be seen. --exported PROGRAM.pt2 compares with the program"
)


def comparison_lines(comparison: Comparison, width: int, table: Sequence[str] = ()) -> list[str]:
    """The table, the coverage, and the first wrong launch.

    Args:
        table: takes the place of that of the launches.
    """
    lines = [*(table or _launch_lines(comparison, width)), *coverage_lines(comparison, width)]
    lines += state_lines(comparison)
    lines += output_lines(comparison, width)
    wrong = comparison.first_wrong
    return lines if wrong is None else [*lines, "", *wrong_lines(comparison, wrong)]


def _launch_lines(comparison: Comparison, width: int) -> list[str]:
    shown = [row for row in comparison.rows if row.reason != SILENT]
    against_sources = any(row.verdict in AGAINST_SOURCES for row in comparison.rows)
    has_metric = any(o.metric is not None for row in comparison.rows for o in row.outputs)
    measured = (*(() if against_sources else _ERRORS), *((_METRIC,) if has_metric and not against_sources else ()))
    places = place_columns(row.launch.site.provenance for row in shown)
    columns = (*_LAUNCH, *places.columns, *measured, _VERDICT)
    rows: list[list[str | Cell]] = []
    above: str | Cell = ""
    for row in shown:
        line, *module = places.cells(row.launch.site.provenance)
        numbers = [*_errors(row), _metric(row)][: len(measured)]
        where = _SAME if line == above != UNKNOWN else line
        rows.append([row.launch.id, _name(row.launch), where, *module, *numbers, Sentence(_verdict(row))])
        above = line
    legend = SOURCES_LEGEND if against_sources else LEGEND
    table = terminal_cells.table(columns, rows, width)
    return [*table.lines_and_hidden(width), "", *terminal_cells.wrapped(legend, width)]


def not_independent(comparison: Comparison) -> tuple[str, ...]:
    """A sentence on what eager computes with the code of the package, so that a fault in that code is not seen."""
    rows = [row for row in comparison.rows if row.same_code and row.compared_bytes]
    if not rows:
        return ()
    size = wording.byte_size(comparison.coverage.same_code_bytes)
    run = "launch that runs" if len(rows) == 1 else "launches that run"
    return (
        f"not independent: {size} of what was compared was written by {len(rows)} {run} the same code as the program "
        "in eager",
    )


def doubtful_equality(comparison: Comparison) -> Iterator[str]:
    """Yields a sentence on each output that is eager's while float64 has something else: eager's rounding is in it."""
    for row in comparison.rows:
        for output in row.outputs if row.verdict is not LaunchVerdict.WRONG else ():
            name = f"{output.argument} of {row.launch.id}"
            if output.decided:
                count = f"{output.decided} of {wording.pluralize(output.count, 'element')}"
                yield f"{count} of {name} are as in eager, and float64 has others: rounding decides about them"
            elif output.equals_eager and output.relative > _FAR and output.relative_ulp > _FAR_ULP:
                error = f"a relative error of {short(output.relative)}"
                yield f"{name} equals eager's, and both have {error} against float64"


def eager_notes(comparison: Comparison) -> list[str]:
    """Sentences on memory that outputs have otherwise than in eager, and on why eager may be no proof."""
    doubtful = list(doubtful_equality(comparison))
    count = len(doubtful[_MAX_DOUBTFUL:])
    more = [f"the same of {wording.pluralize(count, 'more output')}"] if count else []
    inexact = (operator.text for operator in comparison.inexact)
    tolerated = [text for error in comparison.outputs if (text := _tolerated_text(error))]
    rest = len(tolerated[_MAX_TOLERATED:])
    tolerated[_MAX_TOLERATED:] = [f"the same rule passes {wording.pluralize(rest, 'more output')}"] if rest else []
    return [*comparison.shared, *inexact, *doubtful[:_MAX_DOUBTFUL], *more, *tolerated]


def _tolerated_text(error: OutputError) -> str:
    """A sentence on an output that is off by more than a few units, and passes as rounded; "" for any other."""
    if error.tolerated is None:
        return ""
    dtype = error.computed or error.dtype
    rule = f"where a program computes in {dtype}, up to {short(error.tolerated)} counts as rounding"
    return f"{output_text(error)}; {rule}"


def coverage_lines(comparison: Comparison, width: int) -> list[str]:
    """The number of launches and bytes that were compared, and why the others were not."""
    coverage = comparison.coverage
    share = 100 * coverage.compared_bytes / coverage.bytes if coverage.bytes else 0.0
    readers = coverage.through_readers
    through = f", {wording.pluralize(readers, 'launch')} through their readers" if readers else ""
    lines = terminal_cells.fitted(
        f"compared: {coverage.compared} of {wording.pluralize(coverage.launches, 'launch')}{through}, "
        f"{wording.byte_size(coverage.compared_bytes)} of {wording.byte_size(coverage.bytes)} of outputs "
        f"({share:.1f} %)",
        width,
    )
    notes = (*not_independent(comparison), *(f"note: {text}" for text in eager_notes(comparison)))
    lines += [line for text in notes for line in terminal_cells.fitted(text, width)]
    reasons: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.reason in (SILENT, PRIVATE):
            continue
        for reason in (row.reason, *row.notes):
            if reason:
                reasons.setdefault(reason, []).append(row.launch.id)
    for reason, launches in reasons.items():
        lines += terminal_cells.fitted(f"note: {wording.join_truncated(launches, 4)}: {reason}", width)
    if comparison.unfinished:
        lines += terminal_cells.fitted(f"note: the run did not end well: {comparison.unfinished}", width)
    if comparison.program_failure:
        lines += terminal_cells.fitted(f"note: inherited errors end where {comparison.program_failure}", width)
    return lines


def state_lines(comparison: Comparison) -> list[str]:
    """The number of states that change as the program says, and each that does not."""
    failure = comparison.states_failure
    lines = [f"note: the comparison with the exported program is incomplete: {failure}"] if failure else []
    if not comparison.states:
        return lines
    wrong, count = comparison.wrong_states, len(comparison.states)
    who = "the graph of the kernels" if failure else "the program"
    lines.append(f"state: {count - len(wrong)} of {wording.pluralize(count, 'change')} as {who} says")
    return [*lines, *(f"WRONG state {state_text(change)}" for change in wrong)]


def output_lines(comparison: Comparison, width: int) -> list[str]:
    """The outputs that no wrong launch or state explains, and what passes have made of the program."""
    lines = [f"note: {noise_text(error)}" for error in comparison.outputs if error.is_noise]
    if comparison.first_wrong is None:
        lines = [*_wrong_output_lines(comparison), *lines]
    return [line for sentence in lines for line in terminal_cells.fitted(sentence, width)]


def _wrong_output_lines(comparison: Comparison) -> list[str]:
    faulty, is_proved = comparison.faulty_outputs, comparison.is_program_altered
    others = [error for error in comparison.wrong_outputs if not error.fault and not error.is_noise]
    if not (others or faulty or is_proved) or (comparison.wrong_states and not is_proved and not faulty):
        return []
    sentences = [*map(output_text, others), *alteration_sentences(comparison)]
    if is_proved:
        options = suggested_commands.options_of(comparison.run)
        command = suggested_commands.bisect_settings(comparison.program_path, options)
        sentences[-1] += f"; {command} looks for the pass"
    elif others:
        sentences[-1] += ", and no launch that was compared is wrong"
    head = "WRONG: " if is_proved else "note: "
    return [*(f"WRONG: {output_text(error)}" for error in faulty), *(f"{head}{sentence}" for sentence in sentences)]


def alteration_sentences(comparison: Comparison) -> list[str]:
    """Sentences about wrong outputs that no launch explains: how the graph differs, and what it lost first."""
    alteration = comparison.alteration
    if alteration is None:
        return []
    if alteration.relative < 0:
        return ["the graph that the kernels were generated from could not be computed in float64"]
    if not alteration.is_proved and alteration.is_rounded and alteration.relative > LEAST:
        return [
            f"the graph that the kernels were generated from has a relative error of {short(alteration.relative)}, in "
            "float64 but for what rounds there, too: that may make as much"
        ]
    if not alteration.is_proved:
        return ["the graph that the kernels were generated from computes what the program says, in float64"]
    is_finite = math.isfinite(alteration.relative)
    difference = f"has a relative error of {short(alteration.relative)}" if is_finite else "is not finite alike"
    sentences = [
        "a graph pass or a decomposition of Inductor changed the program: the graph that the kernels were generated "
        f"from {difference} in float64, where rounding does not matter"
    ]
    sentences += [lost.sentence for lost in alteration.lost]
    for kept in alteration.kept:
        place = f" at {kept.line.place}" if kept.line is not None else ""
        sentences.append(f"it has the numbers of {kept.text}{place}, and returns others for it")
    return sentences


def output_text(error: OutputError) -> str:
    """ "output 0 has a relative error of 0.13 against what the exported program returns in eager"."""
    if error.fault:
        return f"output {error.index} {error.fault}"
    example = "" if error.example is None else f": {_returned_text(error.example)}"
    if error.misplaced:
        are = "is" if error.misplaced == 1 else "are"
        count = f"{error.misplaced} of {wording.pluralize(error.elements, 'element')}"
        return f"output {error.index}: {count} {are} NaN or infinite otherwise than in eager{example}"
    if is_exact(error.dtype):
        count = f"{error.different} of {wording.pluralize(error.elements, 'element')}"
        differ = "differs" if error.different == 1 else "differ"
        return f"output {error.index}: {count} {differ} from what the exported program returns in eager{example}"
    if not math.isfinite(error.relative):
        return f"output {error.index} has other zeros than what the exported program returns in eager{example}"
    relative = f"a relative error of {short(error.relative)}"
    return f"output {error.index} has {relative} against what the exported program returns in eager{example}"


def noise_text(error: OutputError) -> str:
    """A sentence about an output whose numbers float64 does not have, of the run or of eager."""
    return f"{output_text(error)}; against float64, hardly a digit is right in eager either"


def _returned_text(element: ReturnedElement) -> str:
    """ "[0, 3] is 0.0, eager returns nan"."""
    place = f"[{', '.join(map(str, element.index))}]" if element.index else "it"
    return f"{place} is {element.actual}, eager returns {element.expected}"


def state_text(state: StateChange) -> str:
    """ "cache does not change in call 0: …"."""
    if state.advance is Advance.OTHER_BEGIN:
        begin = f"{state.name} is not what the program begins with"
        return begin if state.difference is None else f"{begin}: {_difference_text(state)}"
    does = {
        Advance.NOT_AT_ALL: "does not change",
        Advance.UNTOUCHED: "does not change",
        Advance.TWICE: "changes twice as much as in the program",
        Advance.OTHERWISE: "changes otherwise than in the program",
    }[state.advance]
    last = f"{state.launch} wrote it last" if state.launch else "no launch writes it"
    text = f"{state.name} {does} in call {state.call}: {last}; the program overwrites it"
    if state.change is None:
        return text
    return f"{text}, changes it by up to {_number(state.change)}, and {_difference_text(state)}"


def _difference_text(state: StateChange) -> str:
    """ "it differs by up to 0.5, 3 elements are NaN or infinite otherwise than there"."""
    differs = f"it differs by up to {_number(state.difference or 0.0)}"
    if not state.misplaced:
        return differs
    are = "is" if state.misplaced == 1 else "are"
    return f"{differs}, {wording.pluralize(state.misplaced, 'element')} {are} NaN or infinite otherwise than there"


def wrong_lines(comparison: Comparison, row: Row) -> list[str]:
    """The first wrong launch: element, value, operators, repro."""
    worst = row.worst
    if worst is None:
        return [
            f"DIFFERS {row.launch.id} {row.launch.kernel}",
            f"  because  {row.reason}: its machine code, or the tool that ran its source, may be wrong",
            f"  repro    {comparison.repro}",
            f"  next     {_next(comparison, row)}",
        ]
    together = f" (launches {', '.join(row.together_with)} together)" if len(row.together_with) > 1 else ""
    lines = [f"WRONG {row.launch.id} {_name(row.launch)}{together}", *_element_lines(worst)]
    lines += _suspect_lines(row.suspects)
    others = [r.launch.id for r in comparison.rows if r.verdict is LaunchVerdict.WRONG and r is not row]
    lines += [f"  also     wrong from their own inputs: {wording.join_truncated(others, 4)}"] if others else []
    if comparison.repro:
        lines.append(f"  repro    {comparison.repro}")
    lines.append(f"  next     {_next(comparison, row)}")
    return lines


def _next(comparison: Comparison, row: Row) -> str:
    if comparison.repro:
        return f"python {comparison.repro}/repro.py"
    return suggested_commands.show(comparison.run, row.launch.id)


def _element_lines(worst: Measurement) -> list[str]:
    element = worst.worst
    if element is None:
        return []
    place = ", ".join(map(str, unravel(element.index, worst.shape)))
    how = "are wrong" if not worst.bias else f"differ, by {worst.bias:+.2f} ULP away from zero on average"
    return [
        f"  element  {worst.argument}[{place}] {values_text(element)}",
        f"  output   {worst.argument} holds {worst.value}: {worst.wrong} of {worst.count} elements {how}",
    ]


def values_text(element: Element) -> str:
    """ "is 1.5, should be 1.25, eager computes 1.2500001"."""
    floating = f", eager computes {element.eager}" if element.eager != element.expected else ""
    return f"is {element.actual}, should be {element.expected}{floating}"


def _suspect_lines(suspects: Sequence[Suspect]) -> list[str]:
    lines, above = [], None
    for n, suspect in enumerate(suspects[:MAX_SUSPECTS]):
        line = suspect.line
        where = f"{line.place} in {line.function}: {line.text}" if line else "model line unknown"
        where, above = f"{_SAME} line" if line is not None and line == above else where, line
        lines.append(f"  {'operator' if n == 0 else '':8} {suspect.text}  {where}")
        lines += [f"           {suspect.place}"] if suspect.place else []
    if len(suspects) > MAX_SUSPECTS:
        lines.append(f"           and {len(suspects) - MAX_SUSPECTS} more operators before it")
    return lines


def _errors(row: Row) -> list[str]:
    """The cells of the errors of a launch; blank where it has none."""
    worst = row.worst
    if worst is None:
        return [""] * len(_ERRORS)
    inherited = (row.inherited or {}).get(worst.argument)
    return [
        short(LARGEST if worst.lost else worst.relative),
        "" if inherited is None else short(inherited),
        short(eager_error(worst)),
        short(worst.ulp_median),
        short(worst.ulp_max),
        short(worst.rtol),
        _number(worst.atol),
        "" if worst.sensitivity < 0 else short(worst.sensitivity),
    ]


def _verdict(row: Row) -> str:
    same = SAME_CODE if row.same_code and row.outputs else ""
    return row.verdict.value + (f": {row.reason}" if row.reason else same)


def _name(launch: Launch) -> str:
    """The kernel, with the iteration of the loops that the launch is in: "cpp_fused_sin_2 [0]"."""
    return launch.kernel + (f" [{'.'.join(map(str, launch.loops))}]" if launch.loops else "")


def eager_error(output: Measurement) -> float:
    """The error of eager itself, as a part of the expected values like `Measurement.relative`.

    LARGEST where it is NaN or infinite otherwise than float64.
    """
    if output.eager_lost:
        return LARGEST
    share = output.eager_rms / output.rms * output.relative if output.rms else 0.0
    return share if math.isfinite(share) else LARGEST


def _metric(row: Row) -> str:
    worst = row.worst
    return "" if worst is None or worst.metric is None else _number(worst.metric)


def short(value: float) -> str:
    """A relative error with two digits; "inf" of what should be zero, "NaN/Inf" of what is not finite alike."""
    return "inf" if OF_ZERO <= value < LARGEST else _number(value)


def _number(value: float) -> str:
    """An absolute error, or another number, with two digits; "NaN/Inf" for LARGEST."""
    if value >= LARGEST:
        return "NaN/Inf"
    return f"{value:.2g}" if value else "0"
