"""The differences of two runs as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.terminal_cells import Cell, Column, Sentence
from aoti_debug.compare.diff.difference import (
    Diff,
    DiffCause,
    DiffExplanation,
    InputDifference,
    LaunchDifference,
    ModuleDifference,
    TensorDifference,
)
from aoti_debug.compare.diff.element_difference import ElementDifference
from aoti_debug.compare.diff.pairs import PairedBy, PairRelation
from aoti_debug.compare.diff.repeated_calls import RepeatedCalls
from aoti_debug.compare.modules import fused_note
from aoti_debug.compare.protocol.measurement import OF_ZERO
from aoti_debug.package import recording_settings
from aoti_debug.package.argument_values import unravel
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir

_NAME = 48  # columns of the name of a setting
MAX_LISTED = 8  # launches, settings or inputs that are listed unless all are asked for
_UNKNOWN_CAUSE = "a race, or a read of memory that nothing has written: its operator and its source do not say"
_PAIRED = {
    PairedBy.LAUNCH: "launch by launch",
    PairedBy.VALUE: "by the values of the program that they write",
}


OUTCOMES = {
    PairRelation.PARTS: "parts: it read the same inputs, and wrote different results",
    PairRelation.CONSEQUENCE: "read different inputs, and wrote different results",
    PairRelation.INPUTS_UNKNOWN: "wrote different results; not all of its inputs were recorded",
}

CAUSES = {
    DiffCause.ROUNDING: "rounding suffices: from the same inputs, both are within what it explains",
    DiffCause.TIES: "ties, maybe: elements that are equal, or that rounding decides",
    DiffCause.ILL_CONDITIONED: "rounding suffices: both are within what it explains, much as that is (ill-conditioned)",
    DiffCause.CONSEQUENCE: "a consequence, maybe: each is within what rounding explains from what it read",
    DiffCause.PROGRAM: "the two programs compute other values, and rounding does not explain it",
    DiffCause.WRONG: "wrong: rounding does not explain it",
    DiffCause.UNKNOWN: "not known",
}


def diff_lines(
    diff: Diff, excesses: Sequence[str] | None = None, *, most: int = MAX_LISTED, table: Sequence[str] = ()
) -> list[str]:
    """The two runs, what they do not have in common, and the launches that part.

    Args:
        excesses: what exceeds the budget; None without a budget.
        most: how many items each list has.
        table: takes the place of the launches.
    """
    lines = [f"a  {_run(diff.a)}", f"b  {_run(diff.b)}", ""]
    lines += _settings(diff, most)
    lines += [summary(diff), ""]
    lines += _inputs(diff, most)
    lines += table or _launches(diff, most)
    lines += alone_lines(diff)
    lines += [f"note: {note}" for note in note_lines(diff)]
    lines += _excesses(excesses, most) if excesses is not None else [verdict(diff)]
    return lines


_MODULES = (
    Column("module", min_width=12, share=2),
    Column("launches", align_right=True),
    Column("differ", align_right=True),
    Column("rtol", align_right=True),
    Column("a from float64", align_right=True),
    Column("b from float64", align_right=True),
    Column("nearer"),
    Column("largest difference", min_width=14, share=1, dropped_below=100),
)
_MODULES_LEGEND = (
    "differ: launches that wrote other bytes; rtol: the largest relative difference of an element; from float64: the "
    "largest relative error of what differs, root mean square, from what each side itself had read"
)


def module_lines(modules: Sequence[ModuleDifference], width: int) -> list[str]:
    """The table of the modules."""
    table = terminal_cells.table(_MODULES, [_module_cells(module) for module in modules], width)
    notes = (_MODULES_LEGEND, fused_note(module.part for module in modules))
    wrapped = [line for note in notes for line in terminal_cells.wrapped(note, width)]
    return [*table.lines_and_hidden(width, "--all"), "", *wrapped, ""]


def _module_cells(module: ModuleDifference) -> list[str | Cell]:
    worst, (first, second) = module.worst, module.errors
    tensor = None if worst is None else worst[1]
    elements, layout = (None, None) if tensor is None else (tensor.elements, tensor.pair.b.argument.layout)
    largest = "" if worst is None or elements is None else f"{elements.max_relative:.3g}"
    place = ""
    if worst is not None and elements is not None and layout is not None:
        place = f"{worst[0].launch.id} {worst[1].name}: {element_text(elements, layout.shape)}"
    nearer = "" if first is None or second is None or first == second else "a" if first < second else "b"
    return [
        module.part.name,
        str(len(module.part.launches)),
        str(len(module.items)),
        largest,
        *("" if error is None else f"{error:.3g}" for error in (first, second)),
        nearer,
        Sentence(place),
    ]


def repeat_lines(compared: RepeatedCalls, *, most: int = MAX_LISTED) -> list[str]:
    """The launches whose results change from call to call although their inputs do not.

    Args:
        most: how many of them are listed.
    """
    later = compared.calls - 1
    notes = []
    if compared.changed_state:
        launches = wording.pluralize(compared.changed_state, "launch")
        notes.append(f"note: {launches} read an input or a state that an earlier call has changed")
    if compared.following:
        following = wording.pluralize(compared.following, "launch")
        notes.append(f"note: {following} read different inputs, and wrote different results")
    if compared.not_recorded:
        notes.append(f"note: of {wording.pluralize(compared.not_recorded, 'launch')} it is not known")
    if not compared.launches:
        known = " as far as it was recorded" if compared.not_recorded else ""
        return [
            f"REPEATABLE in {wording.pluralize(compared.calls, 'call')}{known}: equal bytes from equal bytes",
            *notes,
        ]
    lines = []
    for item in compared.launches[:most]:
        where = f"in {len(item.calls)} of {wording.pluralize(later, 'later call')}"
        lines.append(f"{item.launch.id} {item.launch.kernel} read the same inputs and wrote different results {where}")
        lines += _model_line(item.launch)
        lines += [f"  {tensor.name:<8} {_tensor(tensor)}" for tensor in item.tensors]
        lines += [f"  may be   {cause}" for cause in item.causes or (_UNKNOWN_CAUSE,)]
    lines += _more(len(compared.launches), most)
    first = compared.launches[0]
    unexplained = next((item.launch for item in compared.launches if not item.is_explained), None)
    advice = [] if unexplained is None else _advice(unexplained)
    return [f"NOT REPEATABLE from {first.launch.id} {first.launch.kernel} on", *lines, *notes, *advice]


def _advice(launch: Launch) -> list[str]:
    """Commands that tell a race from an uninitialised read."""
    return [
        "next: aoti-debug triage --guards looks for uninitialised reads",
        f"      aoti-debug run --level 1, aoti-debug repro {launch.kernel}, then repro.py --repeat 100 look for races",
    ]


def element_text(found: ElementDifference, shape: Sequence[int]) -> str:
    """ "3 of 128 elements differ, at most 2 ULP; [4, 0]: 0.5 and 0.50000012", "…; a is NaN at [4, 0], b is 0.5"."""
    place = ", ".join(map(str, unravel(found.worst, shape)))
    differ = f"{found.different} of {wording.pluralize(found.elements, 'element')} differ"
    if found.nan_in:
        return f"{differ}; {nan_text(found, place)}"
    values = "" if found.values is None else f": {number_text(found.values[0])} and {number_text(found.values[1])}"
    if found.max_ulp is not None:
        size = f", at most {wording.number(found.max_ulp)} ULP"
    else:
        size = "" if found.max_absolute is None else f", at most by {wording.number(found.max_absolute)}"
    return f"{differ}{size}; [{place}]{values}"


def nan_text(found: ElementDifference, place: str) -> str:
    """ "a is NaN at [4, 0], b is 0.5" of an element that is NaN on one side, or on both with other bits."""
    if found.values is None or len(found.nan_in) > 1:
        return f"both are NaN at [{place}], with other bits"
    other = "b" if found.nan_in == ("a",) else "a"
    return f"{found.nan_in[0]} is NaN at [{place}], {other} is {number_text(found.values['ab'.index(other)])}"


def number_text(value: object) -> str:
    """An element as it is: all digits of a float."""
    return repr(value) if isinstance(value, float) else str(value)


def _run(run: RunDir) -> str:
    launches = wording.pluralize(len(run.launches), "launch")
    level = f"level {recording_settings.written_level(run.level)}"
    return f"{wording.short_path(run.path)}: {level}, {run.manifest.device}, torch {run.info.torch_version}, {launches}"


def _settings(diff: Diff, most: int) -> list[str]:
    shown = diff.settings[:most]
    names = [terminal_cells.shorten_middle(setting.name, _NAME) for setting in shown]
    width = max(map(len, names), default=0)
    lines = [f"  {name:<{width}}  {item.a or '-'} | {item.b or '-'}" for name, item in zip(names, shown, strict=True)]
    lines += _more(len(diff.settings), most)
    return ["what they do not have in common (a | b)", *lines, ""] if lines else []


def summary(diff: Diff) -> str:
    """ "21 launches paired launch by launch, 5 the same bytes, 16 others"."""
    differing = len(diff.launches)
    parts = [f"{wording.pluralize(diff.paired, 'launch')} paired {_PAIRED[diff.by]}", f"{diff.same} the same bytes"]
    parts += [f"{differing} others"] if differing else []
    parts += [f"{diff.not_recorded} not compared in full"] if diff.not_recorded else []
    return ", ".join(parts)


def _inputs(diff: Diff, most: int) -> list[str]:
    lines = [f"INPUT {input_text(item)}" for item in diff.inputs[:most]]
    lines += _more(len(diff.inputs), most)
    return [*lines, ""] if lines else []


def input_text(item: InputDifference) -> str:
    """ "scale.weight: 3 of 128 elements differ, at most 2 ULP; [4, 0]: 0.5 and 0.50000012"."""
    return f"{item.name}: {_tensor(item.tensor)}"


def _launches(diff: Diff, most: int) -> list[str]:
    """The launches that part; where none does, the first one that differs."""
    parted = diff.parted or diff.launches[:1]
    lines = [line for item in parted[:most] for line in _launch(item)]
    lines += _more(len(diff.parted), most)
    others = diff.launches if diff.parted else diff.launches[1:]
    unknown = [item for item in others if item.outcome is PairRelation.INPUTS_UNKNOWN]
    following = [item for item in others if item.outcome is PairRelation.CONSEQUENCE]
    if following:
        launches = wording.pluralize(len(following), "launch")
        lines.append(f"{launches} read different inputs, and wrote different results: {_ids(following)}")
    if unknown:
        text = "wrote different results, and not all of their inputs were recorded"
        lines.append(f"{wording.pluralize(len(unknown), 'launch')} {text}: {_ids(unknown)}")
    lines += explanation_lines(diff, most, {item.launch.id for item in parted[:most]})
    return [*lines, ""] if lines else []


def _launch(item: LaunchDifference) -> Iterator[str]:
    launch = item.launch
    yield f"{launch.id} {launch.kernel} {OUTCOMES[item.outcome]}"
    counterparts = counterparts_text(item)
    if counterparts:
        yield f"  in a     {counterparts}"
    yield from _model_line(launch)
    for tensor in item.tensors:
        yield f"  {tensor.name:<8} {_tensor(tensor)}"
        if errors := errors_text(tensor):
            yield f"  errors   {errors}"
    if item.explanation is not None:
        yield f"  why      {explanation_text(item.explanation)}"
    for note in item.notes:
        yield f"  note     {note}"


def errors_text(difference: TensorDifference) -> str:
    """ "a 3.1e-08 and b 2.2e-08 from float64, at most 0.12 and 0.1 times what rounding explains: b is nearer"."""
    first, second = difference.errors
    if first is None or second is None:
        return ""
    sizes = f"a {_relative(first.relative)} and b {_relative(second.relative)} from float64"
    shares = f"at most {first.share:.3g} and {second.share:.3g} times what rounding explains"
    return f"{sizes}, {shares}" + (f": {difference.nearer} is nearer" if difference.nearer else "")


def _relative(error: float) -> str:
    return "inf" if error >= OF_ZERO else f"{error:.3g}"


def explanation_text(explanation: DiffExplanation) -> str:
    """A sentence on the cause of a difference, as far as it is known: "b is wrong: 3 of 64 elements of buf1"."""
    if explanation.cause is DiffCause.WRONG:
        sides = " and ".join(explanation.wrong)
        return f"{sides} {'is' if len(explanation.wrong) == 1 else 'are'} wrong: {explanation.reason}"
    said = CAUSES[explanation.cause]
    return f"{said}{', ' if explanation.is_explained else ': '}{explanation.reason}" if explanation.reason else said


def counterparts_text(item: LaunchDifference) -> str:
    """The launches of the first run that it is compared with; "" if it is one of the same name and position."""
    launch = item.launch
    others = [other for other in item.pair.counterparts if (other.id, other.kernel) != (launch.id, launch.kernel)]
    return wording.join_truncated([f"{other.id} {other.kernel}" for other in others], 4) if others else ""


def _model_line(launch: Launch) -> list[str]:
    return [f"  model    {line.place}  {line.text.strip()}" for line in launch.site.provenance.source[:1]]


def _tensor(difference: TensorDifference) -> str:
    layout = difference.pair.b.argument.layout
    if difference.elements is None or layout is None:
        return f"it differs ({difference.reason})"
    return element_text(difference.elements, layout.shape)


def _ids(items: Sequence[LaunchDifference]) -> str:
    return wording.join_truncated([item.launch.id for item in items], 6)


def alone_lines(diff: Diff) -> list[str]:
    """The launches that only one of the runs has, a sentence for each run."""
    return _alone("a", diff.only_a, diff) + _alone("b", diff.only_b, diff)


def _alone(side: str, launches: Sequence[Launch], diff: Diff) -> list[str]:
    if not launches:
        return []
    names = wording.join_truncated([f"{launch.id} {launch.kernel}" for launch in launches], 4)
    what = "without a counterpart" if diff.by is PairedBy.LAUNCH else "write no value that the other run has"
    return [f"{wording.pluralize(len(launches), 'launch')} of {side} {what}: {names}"]


def note_lines(diff: Diff) -> list[str]:
    """The limits of the comparison, one sentence each."""
    notes = [*diff.notes, *diff.unfinished]
    if diff.not_recorded:
        found = [pair.launch.id for pair in diff.pairs if pair.outcome is PairRelation.NOT_RECORDED]
        what = "not all that they wrote was recorded in both runs and has a counterpart"
        notes.append(f"not compared in full: {wording.join_truncated(found, 6)}: {what}")
    if diff.unpaired_outputs:
        notes.append(f"outputs of b without a counterpart: {wording.join_truncated(diff.unpaired_outputs, 6)}")
    return notes


def _excesses(excesses: Sequence[str], most: int) -> list[str]:
    shown = [f"  {line}" for line in excesses[:most]] + _more(len(excesses), most)
    return ["OVER THE BUDGET" if excesses else "WITHIN THE BUDGET", *shown]


def verdict(diff: Diff) -> str:
    """ "SAME", or "DIFFERENT from 0.5 cpp_fused_add_0 on"."""
    if diff.is_same and not diff.is_compared:
        return "NOT COMPARED: no results of a launch are recorded in both runs"
    if diff.is_same:
        return "SAME" if not diff.not_recorded else "SAME as far as it was compared"
    first = diff.first
    if diff.inputs:
        return f"DIFFERENT from the beginning: {wording.join_truncated([item.name for item in diff.inputs], 4)}"
    if first is not None:
        return f"DIFFERENT from {first.launch.id} {first.launch.kernel} on{_rounding(diff)}"
    return "NOT COMPARED to the end" if diff.unfinished or diff.unpaired_outputs else "DIFFERENT"


def _rounding(diff: Diff) -> str:
    """ "; rounding suffices to explain it", "; rounding does not explain 0.7, 0.16"; "" if neither is known."""
    wrong = [item.launch.id for item in diff.unexplained if item.explanation and item.explanation.wrong]
    if wrong:
        return f"; rounding does not explain {wording.join_truncated(wrong, 4)}"
    first = None if diff.first is None else diff.first.explanation
    if first is not None and first.cause is DiffCause.PROGRAM:
        return ": the two programs compute other values there"
    return "; rounding suffices to explain it" if diff.is_rounding and not diff.unpaired_outputs else ""


def explanation_lines(diff: Diff, most: int = MAX_LISTED, shown: Set[str] = frozenset()) -> list[str]:
    """The number of differences that rounding explains, and the differences that it does not.

    Args:
        shown: launches of which more has been said.
    """
    if not diff.is_explained:
        return (
            [f"not known if rounding suffices to explain it: {diff.unexplained_reason}"]
            if diff.unexplained_reason
            else []
        )
    unexplained = diff.unexplained
    lines = [_explained_text(diff)]
    for item in unexplained[:most]:
        assert item.explanation is not None
        why = "see above" if item.launch.id in shown else explanation_text(item.explanation)
        lines.append(f"NOT EXPLAINED {item.launch.id} {item.launch.kernel}: {why}")
    lines += _more(len(unexplained), most)
    for alone in diff.wrong_alone[:most]:
        where = f"{alone.launch.id} {alone.launch.kernel} in {alone.side}"
        lines.append(f"NOT EXPLAINED {where}, without a counterpart, is wrong: {alone.reason}")
    return lines


def _explained_text(diff: Diff) -> str:
    """The number of differences that rounding explains; consequences of other ones are not among them."""
    causes = [item.explanation.cause for item in diff.launches if item.explanation is not None]
    following = 0 if diff.is_rounding else causes.count(DiffCause.CONSEQUENCE)
    explained = len(diff.launches) - len(diff.unexplained) - following
    text = f"rounding suffices to explain {explained} of {wording.pluralize(len(diff.launches), 'difference')}"
    return f"{text}; {following} may be {'a consequence' if following == 1 else 'consequences'}" if following else text


def _more(total: int, most: int) -> list[str]:
    return [f"  and {total - most} more (--all)"] if total > most else []
