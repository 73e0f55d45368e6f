"""Explains the differences of two runs: rounding, or a launch that is wrong.

Each launch that wrote different results is compared with the program of its own side, in float64 from what it read
(aoti_debug.compare). What it read without a counterpart in the other run was made by launches that are looked at with
it. So rounding explains a difference only if nothing on either side, back to equal bytes or to differences that are
explained themselves, is farther from float64 than rounding allows.

That each side is right by its own program says nothing if the programs differ: if a graph pass has changed one of them.
So the largest difference of two that read the same must not exceed the errors of both sides together: the same
expression may have other numbers too, of weights that are written into the kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import dtypes, wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.machine.user_directories import scratch_directory
from aoti_debug.compare.compare import require_trust
from aoti_debug.compare.compare_run import Scope, compare_run, reference_of
from aoti_debug.compare.diff.difference import (
    Diff,
    DiffCause,
    DiffExplanation,
    LaunchDifference,
    SideError,
    TensorDifference,
    WrongAlone,
)
from aoti_debug.compare.diff.judged_launches import JudgedLaunches, Judgement, Place, makers
from aoti_debug.compare.diff.pair_launches import SameExpressions
from aoti_debug.compare.diff.pairs import Pairing, PairRelation, RecordedTensor
from aoti_debug.compare.diff.text import nan_text
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.compare.regions.recorded_values import RecordedValues
from aoti_debug.package.argument_values import unravel
from aoti_debug.package.node_text import PlacedNode, other_nodes_text
from aoti_debug.package.program_graphs import NodeKind, Reference
from aoti_debug.runs.diagnosis.dataflow import input_or_weight_name
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir

_SLACK = 1 + 1e-6  # errors are measured in float64


def explain_differences(diff: Diff, user_code: UserCode, steps: Steps) -> Diff:
    """The differences with their explanations; if they cannot be explained, with the reason."""
    if not diff.launches:
        return diff
    for side, run in (("a", diff.a), ("b", diff.b)):
        if not run.has_tensors:
            return replace(diff, unexplained_reason=f"run {side} saved no tensors: --level 1 saves them")
    try:
        return _explained(diff, user_code, steps)
    except AotiDebugError as error:
        hint = f"; {error.hint}" if error.hint else ""
        return replace(diff, unexplained_reason=f"{wording.first_line(str(error))}{hint}")


@dataclass(frozen=True, kw_only=True)
class _Side:
    """One of the runs.

    Attributes:
        name: "a" or "b".
        differing: its launches that differ.
        alone: its launches without a counterpart.
        paired: what its launches wrote that has a counterpart, and whether that has the same bytes.
    """

    name: str
    run: RunDir
    reference: Reference
    values: RecordedValues
    differing: tuple[Launch, ...]
    alone: tuple[Launch, ...]
    paired: Mapping[Place, bool]

    def launches(self) -> frozenset[str]:
        """All launches to compare with the program."""
        found = {launch.id for launch in (*self.differing, *self.alone)}
        for launch in self.differing:
            found |= {other.id for other in makers(self.values, launch, self.paired.keys())}
        return frozenset(found)


def _explained(diff: Diff, user_code: UserCode, steps: Steps) -> Diff:
    sides = _sides(diff)
    with scratch_directory() as folder:
        a, b = (_judged(side, user_code, folder / side.name, steps) for side in sides)
    pairing = Pairing(diff.by, diff.pairs, diff.only_a, diff.only_b)
    same = SameExpressions(pairing, sides[0].values, sides[1].values)
    given = {item.name for item in diff.inputs}
    launches = []
    for item in diff.launches:
        found = replace(item, tensors=tuple(_with_errors(tensor, a, b) for tensor in item.tensors))
        judged = _judgements(item, a, b)
        first, second = _operators(sides[0], item.pair.counterparts), _operators(sides[1], [item.launch])
        is_same = same.of(item.pair) and _weights(first) == _weights(second)
        known = _Known(is_same, _reads_other(item, sides, given), _unknown_read(item, sides[1]))
        found = replace(found, explanation=_explanation(found, *judged, known))
        cause = None if found.explanation is None else found.explanation.cause
        if cause is DiffCause.PROGRAM or (cause is DiffCause.UNKNOWN and _weights(first) != _weights(second)):
            found = replace(found, notes=(*found.notes, other_nodes_text(first, second)))
        launches.append(found)
    alone = tuple(wrong for side, judged in zip(sides, (a, b), strict=True) for wrong in _wrong_alone(side, judged))
    return replace(diff, launches=tuple(launches), wrong_alone=alone)


def _sides(diff: Diff) -> tuple[_Side, _Side]:
    references = [reference_of(run)[0] for run in (diff.a, diff.b)]
    values = [RecordedValues(run, reference) for run, reference in zip((diff.a, diff.b), references, strict=True)]
    writes = [write for pair in diff.pairs for write in pair.writes if write.equal is not None]
    differing = {launch.key: launch for item in diff.launches for launch in item.pair.counterparts}
    unpaired = [pair.launch for pair in diff.pairs if pair.unpaired_writes]
    return (
        _Side(
            name="a",
            run=diff.a,
            reference=references[0],
            values=values[0],
            differing=tuple(differing.values()),
            alone=diff.only_a,
            paired={_place(write.a): write.equal is True for write in writes},
        ),
        _Side(
            name="b",
            run=diff.b,
            reference=references[1],
            values=values[1],
            differing=tuple(item.launch for item in diff.launches),
            alone=(*diff.only_b, *unpaired),
            paired={_place(write.b): write.equal is True for write in writes},
        ),
    )


def _judged(side: _Side, user_code: UserCode, folder: Path, steps: Steps) -> JudgedLaunches:
    """The launches of a side, compared with its program.

    Raises:
        AotiDebugError: they cannot be.
    """
    require_trust(side.run, trusted=user_code.trusted)
    folder.mkdir()
    with steps.step(f"evaluate {side.name}") as note:
        launches = side.launches()
        code = user_code.after(side.run.info.imports, side.run.info.libraries)
        scope = Scope(launches=launches, inherited=False, user_code=code)
        rows = compare_run(side.run, scope, folder, Steps(None)).rows
        note.text = f"{wording.pluralize(len(launches), 'launch')} in float64"
    return JudgedLaunches(side.values, rows, side.paired.keys())


@dataclass(frozen=True)
class _Known:
    """What is known of a launch that differs, beside the judgements.

    Attributes:
        is_same_expression: both sides compute it by the same expression, with the same numbers in their kernels.
        reads_other: it, or a launch without a counterpart before it, reads what differs.
        unknown_read: an argument that it reads, and whose counterpart is not known; "" without one.
    """

    is_same_expression: bool
    reads_other: bool
    unknown_read: str


def _judgements(item: LaunchDifference, a: JudgedLaunches, b: JudgedLaunches) -> tuple[Judgement, Judgement]:
    """The judgements on a launch that differs: on its counterparts, the first that is wrong or not known, and on it."""
    pairs = [tensor.pair for tensor in item.tensors]
    of_a = []
    for launch in item.pair.counterparts:
        names = tuple(pair.a.argument.name for pair in pairs if pair.a.launch.key == launch.key)
        if names:
            of_a.append(a.judgement(launch, names))
    first = Judgement(
        next((found.wrong for found in of_a if found.wrong), ""),
        next((found.unknown for found in of_a if found.unknown), ""),
        any(found.is_ill_conditioned for found in of_a),
    )
    return first, b.judgement(item.launch, tuple(pair.b.argument.name for pair in pairs))


def _explanation(item: LaunchDifference, a: Judgement, b: Judgement, known: _Known) -> DiffExplanation:
    if a.wrong or b.wrong:
        sides = [(name, found.wrong) for name, found in (("a", a), ("b", b)) if found.wrong]
        return DiffExplanation(DiffCause.WRONG, tuple(name for name, _ in sides), _of_sides(sides))
    if a.unknown or b.unknown:
        sides = [(name, found.unknown) for name, found in (("a", a), ("b", b)) if found.unknown]
        return DiffExplanation(DiffCause.UNKNOWN, reason=_of_sides(sides))
    if known.unknown_read:
        return DiffExplanation(DiffCause.UNKNOWN, reason=f"what it read has no counterpart: {known.unknown_read}")
    unread = f"without {wording.join_truncated(b.unread, 4)}, which nothing reads" if b.unread else ""
    may_read_other = any(read.equal is not True for read in item.pair.reads) or known.reads_other
    if may_read_other or item.pair.numbers:
        if not known.is_same_expression:
            reason = "it read different inputs, and the two programs compute it in other ways"
            return DiffExplanation(DiffCause.UNKNOWN, reason=reason)
        return DiffExplanation(DiffCause.CONSEQUENCE, reason=unread)
    beyond = _beyond_both_errors(item)
    if beyond is not None and not known.is_same_expression:
        return beyond
    if a.is_ill_conditioned or b.is_ill_conditioned:
        return DiffExplanation(DiffCause.ILL_CONDITIONED, reason=unread)
    if beyond is not None and beyond.cause is DiffCause.PROGRAM:
        return beyond
    return DiffExplanation(
        DiffCause.TIES if all(map(_is_discrete, item.tensors)) else DiffCause.ROUNDING, reason=unread
    )


def _of_sides(sides: list[tuple[str, str]]) -> str:
    """The texts of the sides in one; a text that both have once."""
    texts = {text for _, text in sides}
    return "; ".join(f"in {name} {text}" for name, text in sides) if len(texts) > 1 else texts.pop()


def _beyond_both_errors(item: LaunchDifference) -> DiffExplanation | None:
    """The explanation of a launch that differs by more than the errors of both sides together; None of another one."""
    other_ways = "the two programs compute it in other ways, and "
    for tensor in item.tensors:
        first, second = tensor.errors
        largest = None if tensor.elements is None else tensor.elements.max_absolute
        if _is_discrete(tensor):
            return DiffExplanation(
                DiffCause.UNKNOWN, reason=f"{other_ways}ties may decide the integers of {tensor.name}"
            )
        if first is None or second is None or largest is None:
            reason = f"{other_ways}how far {tensor.name} is from float64 is not known"
            return DiffExplanation(DiffCause.UNKNOWN, reason=reason)
        elements, layout = tensor.elements, tensor.pair.b.argument.layout
        if elements is not None and elements.nan_in and layout is not None:
            place = ", ".join(map(str, unravel(elements.worst, layout.shape)))
            reason = f"{other_ways}of {tensor.name}, {nan_text(elements, place)}"
            return DiffExplanation(DiffCause.UNKNOWN, reason=reason)
        if not largest <= (first.absolute + second.absolute) * _SLACK:
            errors = [wording.number(side.absolute) for side in (first, second)]
            reason = (
                f"{tensor.name} differs by {wording.number(largest)}, where the errors are {errors[0]} and {errors[1]}"
            )
            if item.outcome is PairRelation.PARTS:
                return DiffExplanation(DiffCause.PROGRAM, reason=reason)
            return DiffExplanation(DiffCause.UNKNOWN, reason=other_ways + reason)
    return None


def _is_discrete(tensor: TensorDifference) -> bool:
    layout = tensor.pair.b.argument.layout
    return layout is not None and dtypes.of_name(layout.dtype) is not None and not dtypes.has_fractions(layout.dtype)


def _reads_other(item: LaunchDifference, sides: tuple[_Side, _Side], given: set[str]) -> bool:
    """True if a launch, or one without a counterpart before it, reads what differs: of another launch, or of `given`.

    Args:
        given: the model inputs and weights that differ.
    """
    a, b = sides
    behind = [(b, item.launch), *((a, launch) for launch in item.pair.counterparts)]
    return any(
        not side.paired.get((read.write.launch.key, read.write.argument.name), True)
        if read.write is not None
        else input_or_weight_name(side.run.manifest, read.argument) in given
        for side, launch in behind
        for other in makers(side.values, launch, side.paired.keys())
        for read in side.values.reads.get(other.key, ())
    )


def _unknown_read(item: LaunchDifference, b: _Side) -> str:
    """An argument without a counterpart that no launch wrote, and that is no model input or weight; "" without one."""
    if item.outcome is not PairRelation.INPUTS_UNKNOWN:
        return ""
    for read in b.values.reads.get(item.launch.key, ()):
        is_alone = read.argument.name in item.pair.unpaired_reads and read.write is None
        if is_alone and not read.argument.written and not input_or_weight_name(b.run.manifest, read.argument):
            return read.argument.name
    return ""


def _with_errors(tensor: TensorDifference, a: JudgedLaunches, b: JudgedLaunches) -> TensorDifference:
    pair = tensor.pair
    first, second = a.error(pair.a.launch, pair.a.argument.name), b.error(pair.b.launch, pair.b.argument.name)
    return replace(tensor, errors=(_side_error(first), _side_error(second)))


def _side_error(found: Measurement | None) -> SideError | None:
    return None if found is None else SideError(found.relative, found.atol, found.excess)


def _operators(side: _Side, launches: Iterable[Launch]) -> list[PlacedNode]:
    """The operators between what launches wrote and what they read, back to what has a counterpart, the last first.

    Also the weights among them that they do not read, as their numbers are in the kernels.
    """
    together = {other.key: other for one in launches for other in (one, *makers(side.values, one, side.paired.keys()))}
    found: dict[str, PlacedNode] = {}
    for launch in together.values():
        graph = side.values.graph(launch)
        ends = [write.value.node for write in side.values.writes.get(launch.key, ()) if write.value is not None]
        read = {read.value.node for read in side.values.reads.get(launch.key, ()) if read.value is not None}
        while graph is not None and ends:
            node = graph.by_name[ends.pop()]
            if (node.kind is NodeKind.CALL or node.value is not None) and node.name not in {*read, *found}:
                line = side.reference.lines[node.line].place if node.line >= 0 else ""
                found[node.name] = PlacedNode(node, line)
                ends += node.inputs
    return list(found.values())


def _weights(nodes: Iterable[PlacedNode]) -> Mapping[str, tuple[object, ...]]:
    """The elements of the weights among some nodes, by name."""
    return {node.target: node.value for node, _ in nodes if node.value is not None}


def _wrong_alone(side: _Side, judged: JudgedLaunches) -> Iterator[WrongAlone]:
    for launch in side.alone:
        if wrong := judged.own(launch).wrong:
            yield WrongAlone(side.name, launch, wrong)


def _place(tensor: RecordedTensor) -> Place:
    return tensor.launch.key, tensor.argument.name
