"""The outcome of a comparison: its kind and exit code, findings of a model whose launches are right, and their text."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.errors import EXIT_FINDING
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.comparison import Beginning, Comparison
from aoti_debug.compare.measure.output_errors import OutputError, is_exact, rounding_in
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.precision_setting import PRECISION
from aoti_debug.compare.protocol.measurement import NOT_REPEATABLE
from aoti_debug.compare.protocol.messages import BadOperand, InputElement, Refusal
from aoti_debug.compare.suspects import UndefinedOperator
from aoti_debug.compare.text import comparison_lines, output_text, short
from aoti_debug.package.manifest import ModelLine, Role
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import CLEAN, INCOMPLETE, Finding, FindingKind, Place, place_of
from aoti_debug.runs.diagnosis.verdict_text import element_text
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.show.finding import all_finding_lines

WRONG_VALUE = FindingKind(
    "wrong_value", "a launch computes something else than its program says", "WRONG VALUE", "wrong value", "≉"
)
REFUSED = FindingKind(
    "refused_by_eager",
    "the exported program raises an exception in eager for inputs that the package computes with",
    "EAGER REFUSES",
    "refused by eager",
    "⊘",
)
DIFFERS = FindingKind(
    "differs",
    "an output is not eager's, by more than its numbers are rounded, and no launch that was compared is wrong",
    "DIFFERS FROM EAGER",
    "differs from eager",
    "Δ",
)
MAX_NAMED = 4  # of what was not compared


def kind_of(comparison: Comparison) -> FindingKind:
    """The kind of finding of a comparison of a run that ended well."""
    is_wrong = comparison.first_wrong is not None or comparison.is_program_altered
    if is_wrong or comparison.wrong_states or comparison.faulty_outputs:
        return WRONG_VALUE
    if comparison.refusal is not None:
        return REFUSED
    if comparison.differing_outputs:
        return DIFFERS
    return INCOMPLETE if comparison.not_compared else CLEAN


def exit_code(comparison: Comparison) -> int:
    """The exit code of `aoti-debug compare`."""
    return EXIT_FINDING if comparison.unfinished else kind_of(comparison).exit_code


def compared_text(comparison: Comparison) -> str:
    """ "3 of 3 launches computed what the program says"; of an incomplete comparison what was not compared as well."""
    coverage = comparison.coverage
    launches = wording.pluralize(coverage.launches, "launch")
    if comparison.outputs and coverage.launches and not (comparison.not_compared or coverage.compared):
        said = f"the outputs are those of eager, but for rounding; 0 of {launches} compared alone"
        return said + _nonfinite_text(comparison)
    if not comparison.not_compared:
        sources = any(row.verdict is LaunchVerdict.MATCHES_SOURCE for row in comparison.rows)
        said = "what the sources of their kernels say" if sources else "what the program says"
        return f"{coverage.compared} of {launches} computed {said}{_nonfinite_text(comparison)}"
    share = 100 * coverage.compared_bytes // coverage.bytes if coverage.bytes else 0
    compared = coverage.compared + coverage.through_readers
    said = incomplete_text(f"{compared} of {launches}, {share} % of bytes", comparison.not_compared)
    return said + _nonfinite_text(comparison)


def _nonfinite_text(comparison: Comparison) -> str:
    """ "; NaN or infinite as in eager: output 0 (8 of 32 elements)"; "" without any."""
    held = [error for error in comparison.outputs if error.nonfinite and not error.misplaced]
    texts = [f"output {e.index} ({e.nonfinite} of {wording.pluralize(e.elements, 'element')})" for e in held]
    return f"; NaN or infinite as in eager: {wording.join_truncated(texts, MAX_NAMED)}" if texts else ""


def incomplete_text(compared: str, reasons: tuple[str, ...]) -> str:
    """ "1 of 3 launches, 2 % of bytes; not compared: flex_attention"."""
    return f"{compared}; not compared: {wording.join_truncated(reasons, MAX_NAMED)}"


_MAX_OUTPUTS = 3


def refused(comparison: Comparison) -> Finding:
    """The finding that eager raises an exception for inputs that the package computes with."""
    refusal = comparison.refusal
    assert refusal is not None
    line = comparison.refusal_line
    launches = wording.pluralize(len(comparison.run.launches), "launch")
    evidence = (*refusal_sentences(refusal, line), f"the package computed with them: {launches}, no fault")
    where, origin = refused_place(refusal, line), refused_origin(refusal)
    return Finding(REFUSED, refusal.words, where, evidence=evidence, origin=origin)


def refused_place(refusal: Refusal, line: ModelLine | None) -> Place | None:
    """The operator that refuses its operands; None where it is not known."""
    return Place(operator=refusal.operator, frame=line) if refusal.operator else None


def refused_origin(refusal: Refusal) -> Place | None:
    """The element of an input that an operator refuses; None where there are several, or it is not known."""
    only = refusal.inputs[0] if len(refusal.inputs) == 1 else None
    return None if only is None else Place(input=only.name, element=only.number)


def refusal_sentences(refusal: Refusal, line: ModelLine | None) -> tuple[str, ...]:
    """The sentences about what eager was seen to refuse."""
    call = f" in call {refusal.call}" if refusal.call else ""
    sentences = [] if refusal.bad is None else [_bad_text(refusal.bad, line)]
    if refusal.bad is not None and refusal.inputs and refusal.inputs[0].name != refusal.bad.name:
        sentences.append(f"it was computed from {', '.join(map(_element_text, refusal.inputs))}")
    said = f"the exported program, called in eager with the inputs of this run, raises {refusal.error}{call}"
    return (*sentences, said)


def differs(comparison: Comparison) -> Finding:
    """The finding that outputs are not eager's, by more than their numbers are rounded, while no launch is wrong."""
    first, *others = comparison.differing_outputs
    begins, unrepeatable = comparison.beginning, comparison.unrepeatable
    evidence = [operator.text for operator in (*comparison.undefined, *comparison.inexact)]
    evidence += [] if unrepeatable is None else [unrepeatable_text(unrepeatable)]
    evidence += _setting_sentences(comparison)
    rounded = next(filter(None, (_from_rounded(comparison, e) for e in comparison.differing_outputs)), None)
    evidence += [] if rounded is None else [rounded.text]
    evidence += map(output_text, others[:_MAX_OUTPUTS])
    where = None if unrepeatable is None else place_of(unrepeatable)
    if begins is not None and unrepeatable is None:
        launch = comparison.run.launch(begins.launch)
        where = place_of(launch, begins.argument)
        if begins.line is not None and not begins.operator:
            where = replace(where, frame=begins.line)
        evidence += _beginning_sentences(begins)
    if rounded is not None:
        where = where or place_of(rounded.launch, rounded.argument)
    launches = wording.pluralize(comparison.coverage.launches, "launch")
    compared = comparison.coverage.compared
    if compared:
        evidence.append(f"{compared} of {launches} computed what the graph of the kernels says, but for rounding")
    is_open = comparison.setting is None and bool(comparison.suspects_of_rounding)
    possible = [f"{PRECISION} may remove the difference; it was not tried"] if is_open else []
    possible += [] if unrepeatable is None else [may_be_unrepeatable(unrepeatable)]
    possible += [] if rounded is None else [_MAY_BE_ROUNDING]
    possible += [may_be_undefined(operator) for operator in comparison.undefined if not operator.outputs]
    where, origin = _with_undefined(comparison, where, _origin(begins, where) if unrepeatable is None else None)
    recovered = any(map(comparison.is_recovered, comparison.differing_outputs))
    command = (
        "aoti-debug",
        "build",
        suggested_commands.word_of(comparison.program_path),
        "--inductor-config",
        PRECISION,
    )
    return Finding(
        DIFFERS,
        output_text(first),
        where,
        evidence=tuple(evidence),
        possible=tuple(possible),
        origin=origin,
        next=(shlex.join(command),) if recovered or is_open else (),
    )


_MAY_BE_ROUNDING = (
    "rounding may decide these elements: which of two numbers is larger, or which integer a number becomes"
)


@dataclass(frozen=True)
class _FromRounded:
    """A launch that wrote integers of an output from inputs that differ from the program's by no more than rounding.

    Attributes:
        output: its number.
        argument: the variable of the output.
        relative: the largest difference of an input, root mean square.
        equals_eager: eager was seen to make the same integers of these inputs; else the launch runs eager's code.
    """

    launch: Launch
    output: int
    argument: str
    relative: float
    equals_eager: bool

    @property
    def text(self) -> str:
        """The sentence on it."""
        written = f"output {self.output} is {self.argument}, which {self.launch.id} {self.launch.kernel} wrote"
        same = (
            "eager makes the same of what the launch read"
            if self.equals_eager
            else "the launch runs the code that eager runs too"
        )
        differ = f"differ from the program's in eager by a relative error of {short(self.relative)} at most"
        return f"{written}; {same}, and its inputs {differ}"


def _from_rounded(comparison: Comparison, error: OutputError) -> _FromRounded | None:
    """The launch that chose the integers of an output; None where its inputs are not known to differ by rounding."""
    names = comparison.run.manifest.outputs
    name = names[error.index] if is_exact(error.dtype) and error.index < len(names) else ""
    written = (row for row in reversed(comparison.rows) if any(a.written and a.name == name for a in row.launch.args))
    row = next(written, None) if name else None
    equals_eager = row is not None and any(o.argument == name and o.equals_eager for o in row.outputs)
    if row is None or not (row.same_code or equals_eager):
        return None
    flow, inherited = Dataflow(comparison.run), {one.launch.id: one.inherited or {} for one in comparison.rows}
    largest = 0.0
    for argument in row.launch.args:
        if argument.tensor is None or argument.role is Role.OUT:
            continue
        writer = flow.writer(row.launch, argument)
        if writer.input:
            continue
        if writer.launch is None or writer.argument is None or argument.layout is None:
            return None
        relative = inherited.get(writer.launch.id, {}).get(writer.argument.name, math.inf)
        if relative > rounding_in(argument.layout.dtype):
            return None
        largest = max(largest, relative)
    return _FromRounded(row.launch, error.index, name, largest, equals_eager) if largest else None


def _with_undefined(
    comparison: Comparison, where: Place | None, origin: Place | None
) -> tuple[Place | None, Place | None]:
    """The place and the origin; those of the first operator that does what its graph does not say, if there is one.

    One that was only seen to do so, and not to change outputs, takes no place that was measured.
    """
    first = next((operator for operator in comparison.undefined if operator.outputs or where is None), None)
    if first is None:
        return where, origin
    return Place(operator=first.operator, frame=first.line), None


def may_be_undefined(operator: UndefinedOperator) -> str:
    """The sentence that an operator which does what its graph does not say may be to blame."""
    return f"{operator.operator} may be what makes the outputs differ"


def unrepeatable_text(launch: Launch) -> str:
    """ "0.0 mylib::op.default: evaluated again in eager, …"."""
    return f"{launch.id} {launch.kernel}: {NOT_REPEATABLE}"


def may_be_unrepeatable(launch: Launch) -> str:
    """The sentence that a launch which gives something else each time may be to blame."""
    return f"{launch.kernel} may be what makes the outputs differ"


def _origin(begins: Beginning | None, where: Place | None) -> Place | None:
    """The operator in eager whose result is not finite otherwise, or rounds otherwise, where it is known."""
    if begins is None or where is None or not begins.operator:
        return None
    return Place(where.launch, where.kernel, begins.operator, "", begins.argument, None, begins.line or where.frame)


def _beginning_sentences(begins: Beginning) -> Iterator[str]:
    if begins.misplaced:
        yield (
            f"it begins in launch {begins.launch}: {begins.misplaced} of "
            f"{wording.pluralize(begins.count, 'element')} of {begins.argument} are NaN or infinite "
            "otherwise than eager makes them from the same inputs"
        )
    elif is_exact(begins.dtype):
        yield (
            f"it begins in launch {begins.launch}: eager has another {begins.argument} from the same inputs, and "
            "float64, a kernel's arithmetic or inputs that move make others, too: rounding, or the sign of a zero, may "
            "decide"
        )
    elif begins.sensitivity:
        yield (
            f"it begins in launch {begins.launch}: when its inputs move by 1 ULP, {begins.argument} moves "
            f"{short(begins.sensitivity)} times as far (relative)"
        )
    else:
        yield (
            f"it begins in launch {begins.launch}: eager rounds {begins.argument} otherwise, from the same inputs; the "
            "launch is nearer to float64"
        )
    if not begins.operator:
        return
    operator = f"{begins.operator} ({begins.node}){f' at {begins.line.place}' if begins.line is not None else ''}"
    if begins.misplaced:
        yield f"in eager, {operator} is the first whose result is not finite as in float64"
    else:
        yield (
            f"in float64 with only the result of {operator} rounded to {begins.rounded_to}, "
            f"{100 * begins.share:.0f} % of the difference of {begins.argument} from eager is gone"
        )


def _setting_sentences(comparison: Comparison) -> Iterator[str]:
    trial = comparison.setting
    if trial is None:
        return
    if trial.failure:
        yield f"what {trial.setting} makes of it is not known: {trial.failure}"
        return
    found = [(error, trial.relative.get(str(error.index))) for error in comparison.differing_outputs]
    if all(relative == 0 for _, relative in found):
        yield f"observed: with {trial.setting} the outputs equal eager's"
        return
    for error, relative in found[:_MAX_OUTPUTS]:
        yield f"observed: with {trial.setting} {_still(error, relative)}"


def _still(error: OutputError, relative: float | None) -> str:
    if relative is None:
        return f"output {error.index} is NaN or infinite otherwise than in eager, too"
    if relative == 0:
        return f"output {error.index} equals eager's"
    return f"output {error.index} has a relative error of {short(relative)}"


def _bad_text(bad: BadOperand, line: ModelLine | None) -> str:
    """ "`table[rows]`: aten.index.Tensor: rows[1] is -1, table has 6 rows"."""
    return f"`{line.text.strip()}`: {bad.text}" if line is not None and line.text.strip() else bad.text


def _element_text(element: InputElement) -> str:
    return f"{element_text(element.name, element.index)} = {element.value}"


def outcome_lines(comparison: Comparison, width: int) -> list[str]:
    """The headline, and what eager refuses or has otherwise; nothing where the table ends in what is wrong."""
    kind = kind_of(comparison)
    if comparison.unfinished or kind is WRONG_VALUE:
        return []
    if kind in (REFUSED, DIFFERS):
        return all_finding_lines(refused(comparison) if kind is REFUSED else differs(comparison), width)
    return terminal_cells.fitted(f"{kind.heading} {compared_text(comparison)}", width)


def report_lines(comparison: Comparison, width: int, table: Sequence[str] = ()) -> list[str]:
    """The table, the coverage, and what the comparison comes to.

    Args:
        table: takes the place of that of the launches.
    """
    outcome = outcome_lines(comparison, width)
    return [*comparison_lines(comparison, width, table), *(["", *outcome] if outcome else [])]
