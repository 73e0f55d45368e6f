"""The finding of a launch that computes something else than its program says, from a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.compare.compare_run import has_reference, reference_of
from aoti_debug.compare.comparison import RANDOM_NUMBERS, Comparison, Row
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.outcome import (
    DIFFERS,
    MAX_NAMED,
    REFUSED,
    WRONG_VALUE,
    compared_text,
    differs,
    kind_of,
    may_be_undefined,
    may_be_unrepeatable,
    refused,
    unrepeatable_text,
)
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.compare.suspects import LostOperator, Suspect
from aoti_debug.compare.text import (
    alteration_sentences,
    eager_notes,
    noise_text,
    not_independent,
    output_text,
    state_text,
    values_text,
)
from aoti_debug.package.argument_values import unravel
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.program_graphs import MEMBER_OF, MODEL, Graph, Node, returned_nodes
from aoti_debug.runs.diagnosis.findings import Finding, FindingKind, Place, place_of
from aoti_debug.runs.rundir.launch import Launch

AS_RECORDED = "as recorded"  # of a replay: it computes what was recorded
_AS_ITS_GRAPH = (LaunchVerdict.OK, LaunchVerdict.BETTER, LaunchVerdict.ROUNDING)


def finding_of(comparison: Comparison) -> Finding:
    """The first wrong launch of a comparison, a wrong state or output, or what eager refuses or has otherwise.

    If there is none, CLEAN or INCOMPLETE and how much was compared.
    """
    kind = kind_of(comparison)
    if kind is REFUSED:
        return refused(comparison)
    if kind is DIFFERS:
        return differs(comparison)
    if kind is not WRONG_VALUE:
        return _clean(comparison)
    found, refusal = _wrong(comparison), comparison.refusal
    found = replace(
        found,
        evidence=(*found.evidence, *_altered_as_well(comparison), *(one.text for one in comparison.undefined)),
        possible=(*found.possible, *map(may_be_undefined, comparison.undefined)),
        warnings=(*found.warnings, *(operator.text for operator in comparison.inexact)),
    )
    note = () if refusal is None else (f"eager raises {refusal.error} for these inputs: {refusal.words}",)
    return replace(found, warnings=(*found.warnings, *note))


def _altered_as_well(comparison: Comparison) -> tuple[str, ...]:
    """How the program was changed before kernels were generated, beside a launch that is wrong; none if it was not."""
    is_beside = comparison.first_wrong is not None and comparison.is_program_altered
    return tuple(alteration_sentences(comparison)) if is_beside else ()


def _wrong(comparison: Comparison) -> Finding:
    """The first wrong launch, or a wrong state or output."""
    row = comparison.first_wrong
    if row is None and comparison.is_program_altered:
        return _altered(comparison)
    if row is None:
        return _state(comparison) if comparison.wrong_states else _output(comparison)
    worst, launch = row.worst, row.launch
    if worst is None:
        what = f"{launch.kernel} computes something else than its source says"
        return Finding(WRONG_VALUE, what, place_of(launch), evidence=(row.reason,))
    where = place_of(launch, worst.argument, None if worst.worst is None else worst.worst.index)
    elements = wording.pluralize(worst.count, "element")
    are = "is" if worst.wrong == 1 else "are"
    what = f"{worst.wrong} of {elements} of {worst.argument} {are} not what the program says"
    evidence = (*_element(worst), *operators_of(row), *_others(comparison, row))
    explaining = [suspect for suspect in row.suspects if suspect.how and not suspect.partial]
    maybe = [f"{suspect.text}: it may be what is wrong" for suspect in row.suspects if suspect.partial]
    candidates = explaining or row.suspects
    only = candidates[0] if len(candidates) == 1 else None
    origin = None if only is None else replace(where, operator=only.operator, frame=only.line or where.frame)
    origin = None if origin == where else origin
    possible = tuple(maybe[:1]) if maybe or only is not None else _other_lines(where, candidates)
    return Finding(WRONG_VALUE, what, where, evidence=evidence, possible=possible, origin=origin)


def _other_lines(where: Place, suspects: Sequence[Suspect]) -> tuple[str, ...]:
    """A sentence about the lines beside that of a place, of which any may be wrong; none if there are none."""
    found = dict.fromkeys(suspect.line for suspect in suspects)
    others = [f"{Path(line.file).name}:{line.line}" for line in found if line is not None and line != where.frame]
    if where.frame is None or not others:
        return ()
    named = wording.join_truncated(others, MAX_NAMED)
    return (f"its kernel computes other lines as well, of which one may be wrong: {named}",)


def stage(launch: Launch, outcomes: Sequence[str], undefined: Sequence[str] = ()) -> tuple[str, ...]:
    """A sentence about the step of the compilation that went wrong; none where the replays do not tell.

    Args:
        outcomes: of the replays that ran the kernel's source in another way than the compiled one.
        undefined: operators of the program that do what its graph does not say: they may be to blame, and not torch.
    """
    if AS_RECORDED in outcomes:
        same = "its source computes the same values in another way of running it"
        return (same if undefined else f"{same}: the lowering or fusion is likely wrong",)
    if "differs" in outcomes:
        return ("its source computes other values in another way of running it: its compilation may be wrong",)
    if launch.site.op and not traits_of(launch.site.kind).compiled_for_layouts:
        return ("it calls an operator: the operator, or the arguments that it is called with, may be wrong",)
    return ()


def _state(comparison: Comparison) -> Finding:
    """The first state of the model that does not change as the program says.

    Its place is the launch that wrote it last, unless all that this writes is what its own graph says, or no launch
    writes it: then the operator that does in the program, if that is known.
    """
    first, *others = map(state_text, comparison.wrong_states)
    writer = comparison.wrong_states[0].launch
    row = next((row for row in comparison.rows if row.launch.id == writer), None)
    outputs = tuple(map(output_text, comparison.faulty_outputs))
    others = [*(f"in the program, {operator.text}" for operator in comparison.overwriting), *others, *outputs]
    state = comparison.wrong_states[0].name
    lost = next((one for one in comparison.overwriting if one.state == state), None)
    in_program = None if lost is None else Place(operator=lost.operator, frame=lost.line)
    if row is not None and _is_as_its_graph(row, state):
        right = f"{writer} computed what its graph says: the graph may be wrong already, or the value lost after it"
        return Finding(WRONG_VALUE, first, in_program, evidence=(right, *others))
    launch = next((launch for launch in comparison.run.launches if launch.id == writer), None)
    where = in_program if launch is None else place_of(launch)
    return Finding(WRONG_VALUE, first, where, evidence=tuple(others))


def _is_as_its_graph(row: Row, state: str) -> bool:
    """True if a launch wrote what its graph says: all of it, or this state at least, and nothing else is wrong."""
    is_compared = any(output.argument == state.replace(".", "_") for output in row.outputs)
    return row.verdict in _AS_ITS_GRAPH and (is_compared or row.compared_bytes == row.bytes)


def _output(comparison: Comparison) -> Finding:
    """An output that is wrong while no launch, no state and no pass is."""
    first, *others = map(output_text, comparison.faulty_outputs)
    evidence = (*others, *map(state_text, comparison.wrong_states), *_as_their_graph(comparison))
    launch = comparison.unrepeatable
    retyped = _retyped(comparison)
    if retyped is not None:
        kind, place, said = retyped
        return Finding(kind, first, place, evidence=(said, *evidence))
    written = _written(comparison)
    if launch is None and written is not None:
        place, said = written
        lowered = _lowered_otherwise(comparison)
        sentences = (said, *(said for _, said in lowered))
        origin = lowered[0][0] if lowered else None
        told = (*others, *sentences, *evidence[len(others) :])
        return Finding(WRONG_VALUE, first, place, evidence=told, origin=origin)
    if launch is None:
        maybe = "what is returned, or a launch that was not compared, may be wrong"
        return Finding(WRONG_VALUE, first, evidence=evidence, possible=(maybe,))
    evidence = (unrepeatable_text(launch), *evidence)
    return Finding(WRONG_VALUE, first, place_of(launch), evidence=evidence, possible=(may_be_unrepeatable(launch),))


def _written(comparison: Comparison) -> tuple[Place, str] | None:
    """The launch that wrote the first faulty output, if this is of another dtype or shape, and a sentence; or None."""
    error, run = comparison.faulty_outputs[0], comparison.run
    names = run.manifest.outputs
    if not math.isinf(error.relative) or not run.launches or error.index >= len(names) or not names[error.index]:
        return None
    name, call = names[error.index], run.launches[-1].key.call
    for launch in reversed(run.launches):
        if launch.key.call == call and any(argument.written and argument.name == name for argument in launch.args):
            return place_of(launch, name), f"it is {name}, which launch {launch.id} wrote last"
    return None


def _retyped(comparison: Comparison) -> tuple[FindingKind, Place, str] | None:
    """The operator of the program whose result the first faulty output is, where a graph has the output's dtype for it.

    With a sentence: which graph has it. A package that keeps what the program promises differs from eager, which does
    not. None if the graph that kernels were generated from has another dtype.
    """
    error, run = comparison.faulty_outputs[0], comparison.run
    if run.package is None or not has_reference(run) or not error.eager_dtype:
        return None
    reference, _ = reference_of(run)
    exported = reference.of_exported
    if exported is None:
        return None
    before, wanted = _returned_as(exported.graphs[0], error.index)
    _, held = _returned_as(reference.graph("", MODEL), error.index)
    if before is None or not wanted or held != error.dtype:
        return None
    frame = exported.line(before)
    maker = exported.graphs[0].by_name[before.inputs[0]] if before.target == MEMBER_OF else before
    of = f"{maker.target} ({before.name}){'' if frame is None else f' at {frame.place}'}"
    place = Place(operator=maker.target, frame=frame)
    if wanted == held:
        said = f"the exported program promises {held} for it, of {of}, and returns another dtype in eager"
        return DIFFERS, place, said
    said = (
        f"a graph pass or a decomposition of Inductor changed the dtype: in the program it is {wanted}, of {of}; "
        f"the graph that the kernels were generated from has {held}"
    )
    return WRONG_VALUE, place, said


def _lowered_otherwise(comparison: Comparison) -> list[tuple[Place, str]]:
    """The operators whose lowering gave results of another dtype than their graph has, with a sentence for each.

    Those behind the first faulty output that read no result of such an operator, in order; at most MAX_NAMED.
    """
    error, run = comparison.faulty_outputs[0], comparison.run
    reference = reference_of(run)[0] if run.package is not None and has_reference(run) else None
    graph = None if reference is None else reference.graph("", MODEL)
    node, _ = _returned_as(graph, error.index)
    if reference is None or graph is None or node is None:
        return []
    behind = {found.name: found for found in graph.behind(node.name)}
    retyped = [behind[name] for name in graph.sorted(behind) if behind[name].lowered]
    first = [node for node in retyped if not any(other.name in node.inputs for other in retyped)]
    found = []
    for node in first[:MAX_NAMED]:
        frame = reference.line(node)
        at = "" if frame is None else f" at {frame.place}"
        has = node.types[0].dtype if node.types and node.types[0] is not None else ""
        said = f"the lowering of {node.target} ({node.name}){at} gave {node.lowered}, where its graph has {has}"
        found.append((Place(operator=node.target, frame=frame), said))
    return found


def _returned_as(graph: Graph | None, index: int) -> tuple[Node | None, str]:
    """The node of an output and its dtype; None and "" where they are not known."""
    names = [] if graph is None else returned_nodes(graph)
    node = graph.by_name.get(names[index]) if graph is not None and index < len(names) else None
    kind = node.types[0] if node is not None and len(node.types) == 1 else None
    return node, "" if kind is None else kind.dtype


def _altered(comparison: Comparison) -> Finding:
    """Wrong outputs of kernels that are right: what they were generated from is not the program any more."""
    alteration = comparison.alteration
    assert alteration is not None
    first, *others = map(output_text, comparison.wrong_outputs)
    states = map(state_text, comparison.wrong_states)
    evidence = (*alteration_sentences(comparison), *others, *states, *_as_their_graph(comparison))
    is_one = not (alteration.lost and alteration.kept)  # else either may be where the change begins
    origin = beginning_of((*alteration.lost, *alteration.kept)) if is_one else None
    return Finding(WRONG_VALUE, first, evidence=evidence, origin=origin)


def beginning_of(lost: Sequence[LostOperator]) -> Place | None:
    """The first of some operators, where a change of the program begins; None if there is none.

    If it may begin in what that one reads as well, the model line alone, where it is the same.
    """
    if not lost:
        return None
    first = lost[0]
    if not any(operator.is_held for operator in lost):
        return Place(operator=first.operator, frame=first.line)
    is_one_line = first.line is not None and all(operator.line == first.line for operator in lost)
    return Place(frame=first.line) if is_one_line else None


def _as_their_graph(comparison: Comparison) -> tuple[str, ...]:
    """ "2 of 3 launches computed what the graph says that they were generated from"; none if no launch was compared."""
    coverage = comparison.coverage
    if not coverage.compared:
        return ()
    launches = wording.pluralize(coverage.launches, "launch")
    return (f"{coverage.compared} of {launches} computed what the graph says that they were generated from",)


def _clean(comparison: Comparison) -> Finding:
    notes = (*not_independent(comparison), *(noise_text(error) for error in comparison.outputs if error.is_noise))
    wrong = [error for error in comparison.wrong_outputs if not error.is_noise]
    if wrong:
        notes += (*map(output_text, wrong), *alteration_sentences(comparison))
    notes += (
        *(operator.text for operator in comparison.undefined),
        *eager_notes(comparison),
        *_random_notes(comparison),
    )
    if comparison.not_compared[MAX_NAMED:]:
        notes += ("aoti-debug compare tells what else was not compared",)
    return Finding(kind_of(comparison), compared_text(comparison), warnings=notes)


def _random_notes(comparison: Comparison) -> tuple[str, ...]:
    """A note where launches draw random numbers: this explains why outputs are others in each call."""
    drawing = [row.launch.id for row in comparison.rows if row.reason.startswith(RANDOM_NUMBERS)]
    if not drawing:
        return ()
    draw = "draws" if len(drawing) == 1 else "draw"
    return (
        f"{wording.join_truncated(drawing, MAX_NAMED)} {draw} random numbers, which may be others in each call and in "
        "eager: the comparison took those of this run",
    )


def _element(worst: Measurement) -> tuple[str, ...]:
    if worst.worst is None:
        return ()
    place = ", ".join(map(str, unravel(worst.worst.index, worst.shape)))
    element = f"{worst.argument}[{place}]" if place else worst.argument
    return (f"{element} {values_text(worst.worst)}",)


def operators_of(row: Row) -> tuple[str, ...]:
    """Sentences about the operators that a wrong launch computes; none if it is one that explains nothing."""
    names = [f"{suspect.operator} ({suspect.node})" for suspect in row.suspects]
    how = [suspect.text for suspect in row.suspects if suspect.how and not suspect.partial]
    places = [suspect.place for suspect in row.suspects if suspect.place]
    return (
        *how[:1],
        *places[:1],
        *((f"it is computed by {wording.join_truncated(names, 3)}",) if len(names) > 1 else ()),
    )


def _others(comparison: Comparison, row: Row) -> tuple[str, ...]:
    before = [r for r in comparison.rows[: comparison.rows.index(row)] if r.outputs]
    wrong = [r.launch.id for r in comparison.rows if r.verdict is LaunchVerdict.WRONG and r is not row]
    right = f"{wording.pluralize(len(before), 'launch')} before it computed what the program says"
    also = (f"also wrong from their own inputs: {wording.join_truncated(wrong, 4)}",) if wrong else ()
    return (right, *also) if before else also
