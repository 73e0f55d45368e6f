"""Non-finite values: NaN and unintended infinities. A run with statistics of every tensor shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.abi import Phase
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.locate_operator import trace
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.outcome import refused
from aoti_debug.compare.protocol.measurement import UNWRITTEN
from aoti_debug.compare.protocol.messages import TracedElement
from aoti_debug.compare.text import alteration_sentences, output_text
from aoti_debug.package.manifest import Role
from aoti_debug.package.pt2 import archive, program_weights
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.runs.diagnosis.findings import CLEAN, NONFINITE, Finding, Place
from aoti_debug.runs.diagnosis.output_values import output_values
from aoti_debug.runs.diagnosis.special_values import Special, statistics_of
from aoti_debug.runs.diagnosis.verdict_text import element_text
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.checks import faults, wrong_value
from aoti_debug.triage.investigation import confirm_by_repro as replay
from aoti_debug.triage.investigation.confirm_by_repro import proof
from aoti_debug.triage.investigation.graph_trace import with_graph, with_origin
from aoti_debug.triage.investigation.investigation import Check, Investigation, Outcome, Suspicion
from aoti_debug.triage.nonfinite import nonfinite
from aoti_debug.triage.nonfinite.finding_text import HELD
from aoti_debug.triage.nonfinite.harm import OriginTrials, values_text
from aoti_debug.triage.nonfinite.nonfinite import NonFinite
from aoti_debug.triage.results import wrong_value_finding

FOLDER = "origin"  # of the files that take the place of a run's own
_MAX_OUTPUTS, _MAX_WEIGHTS = 2, 3
_LARGEST_WEIGHTS = 4 << 30  # bytes of weights that are looked through
_PROGRAM = "the operators of the lowered program compute it as well"
_SAME = "those operators compute the same from the same inputs"
_AS_IN_EAGER = "in the last call, what the model returns is NaN or infinite where it is in eager, and nowhere else"
_ALSO_IN_EAGER = "the exported program in eager returns NaN or infinities where the model did without it"


def look(investigation: Investigation) -> Suspicion | None:
    """The first harmful NaN or unintended infinity of a run with statistics, and where it came from."""
    wrong_value.begin(investigation)
    measured = investigation.run_measured()
    if measured.verdict is not None:
        return faults.of_ended(investigation, measured)
    search = nonfinite.find(measured.diagnosed.dataflow, investigation.options.infinities)
    if search.finding is None:
        found = None
    else:
        investigation.seen.append(_seen(search.finding))
        found = _with_origin(investigation, search)
        investigation.seen.pop()
    if found is None:
        seen = output_values(measured.run).text
        return Suspicion(Finding(CLEAN, seen, warnings=search.warnings), measured.diagnosed)
    finding = found.finding
    return replace(found, finding=replace(finding, warnings=(*finding.warnings, *search.warnings)))


def _seen(finding: Finding) -> str:
    where = finding.where
    launch = f" ({where.launch} {where.kernel})" if where is not None and where.launch else ""
    return f"{finding.what}{launch}, which may do no harm"


def confirm(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    """Replays the launch alone: it has to produce the same values; saved tensors explain the cause."""
    saved = suspicion.saved
    if saved is None:
        return Outcome(suspicion.finding, suspicion.run)
    finding = _with_operator(investigation, nonfinite.explain(suspicion.finding, saved.run), saved.run)
    outcome = replay.same_values(investigation, Suspicion(finding, saved.diagnosed))
    compared = wrong_value.with_program(investigation)
    if compared is None:
        return outcome
    comparison, wrong = compared
    where = finding.where
    if where is None or not where.launch:
        if wrong is not None:
            return _behind(wrong_value.confirm(investigation, wrong), outcome.finding)
        return replace(outcome, finding=replace(outcome.finding, also=tuple(_besides(comparison, None, ""))))
    right = _SAME if finding.origin is not None and not finding.origin.launch else _PROGRAM
    in_eager = _in_eager(comparison.outputs)
    recovered = _ALSO_IN_EAGER if in_eager == (_AS_IN_EAGER,) else ""
    proved = proof(investigation, investigation.first.run, (where.launch,), right, recovered)
    evidence = (
        *outcome.finding.evidence,
        *in_eager,
        *_of_program(comparison, wrong, where.launch),
        *proved,
    )
    also = tuple(_besides(comparison, wrong, where.launch))
    found = replace(outcome.finding, evidence=evidence, also=also)
    if wrong is not None and where.launch in wrong.needed:
        found = wrong_value.with_search(_made_by_launch(found, wrong), investigation, investigation.first.run)
    found = _of_folded(found, investigation.run_measured().run, investigation.options.model)
    found = _of_lost(_also_in_eager(found, investigation.run_measured().run, comparison.outputs), comparison)
    return replace(outcome, finding=_of_unwritten(found, comparison))


def _besides(comparison: Comparison, wrong: Suspicion | None, launch: str) -> Iterator[Finding]:
    """Yields what else is found: a wrong launch that the one that made NaN does not need, and what eager refuses."""
    if wrong is not None and launch not in wrong.needed:
        yield wrong.finding
    if comparison.refusal is not None:
        yield refused(comparison)


def _made_by_launch(finding: Finding, wrong: Suspicion) -> Finding:
    """The finding of a launch that is wrong: its program has other values for these inputs, which are not to blame.

    The origin is the operator that is wrong, where only one can be.
    """
    is_first = finding.where is not None and wrong.launch is not None and wrong.launch.id == finding.where.launch
    operator = wrong.finding.origin if is_first else None
    came_in = finding.origin is not None and not finding.origin.launch
    if operator is None and not came_in:
        return finding
    return replace(finding, what=finding.what.partition(HELD)[0], origin=operator, chain=())


def _of_lost(finding: Finding, comparison: Comparison) -> Finding:
    """The finding; where a pass changed the outputs, its origin is the operator whose value the pass has lost."""
    alteration = comparison.alteration
    if not comparison.is_program_altered or alteration is None or not alteration.lost:
        return finding
    return replace(finding, origin=wrong_value_finding.beginning_of(alteration.lost), chain=())


def _of_folded(finding: Finding, run: RunDir, model: Path) -> Finding:
    """The finding, with the weights of an exported program that are not finite where the launch may read them unseen.

    torch folds weights into others when it freezes a model, and oneDNN packs them: then their values are not recorded.
    """
    where = finding.where
    if where is None or not where.launch or finding.origin is not None:
        return finding
    read = [argument for argument in run.launch(where.launch).args if argument.role is Role.IN]
    if all(statistics_of(argument, Phase.BEFORE) is not None for argument in read):
        return finding
    texts = list(islice(_nonfinite_weights(model), _MAX_WEIGHTS))
    seen = tuple(f"{text}, which it may read folded or packed" for text in texts)
    return replace(finding, possible=(*seen, *finding.possible))


def _nonfinite_weights(model: Path) -> Iterator[str]:
    """Yields "gain[7], a weight of the program, is nan" of each weight of an exported program that is not finite."""
    if archive.inspect(model).kind is not ArtifactKind.EXPORTED:
        return
    stored = program_weights.stored_weights(model)
    if sum(weight.nbytes for weight in stored.values()) > _LARGEST_WEIGHTS:
        return
    for name, weight in stored.items():
        tensor = program_weights.mapped(model, weight)
        if not tensor.is_floating_point() or tensor.element_size() == 1:
            continue
        bad = (~tensor.isfinite()).nonzero()
        if len(bad):
            index = tuple(bad[0].tolist())
            more = f" (and {len(bad) - 1} more of its elements)" if len(bad) > 1 else ""
            yield f"{element_text(name, index)}, a weight of the program, is {float(tensor[index])}{more}"


def _of_unwritten(finding: Finding, comparison: Comparison) -> Finding:
    """The finding, where outputs depend on memory that the program does not write.

    What gives the memory is the origin if every output that is NaN or infinite otherwise than in eager depends on it.
    """
    unwritten = [operator for operator in comparison.undefined if operator.seen.startswith(UNWRITTEN)]
    if not unwritten:
        return finding
    seen = tuple(operator.text for operator in unwritten)
    other = {error.index for error in comparison.outputs if error.misplaced}
    if not other or not other <= {number for operator in unwritten for number in operator.outputs}:
        return replace(finding, evidence=(*finding.evidence, *seen))
    what = f"your program reads memory that it does not write: {finding.what}"
    origin = Place(operator=unwritten[0].operator, frame=unwritten[0].line)
    return replace(finding, what=what, evidence=(*seen, *finding.evidence), origin=origin, possible=(), chain=())


def _behind(found: Outcome, nonfinite_input: Finding) -> Outcome:
    """A wrong launch of a model that NaN or infinities come into: they are the second finding."""
    return replace(found, finding=replace(found.finding, also=(*found.finding.also, nonfinite_input)))


def _of_program(comparison: Comparison, wrong: Suspicion | None, launch: str) -> tuple[str, ...]:
    """What the program says instead: another graph than that of the kernels, or another result of the launch."""
    if comparison.is_program_altered:
        return tuple(alteration_sentences(comparison))
    if wrong is None or wrong.launch is None or wrong.launch.id != launch:
        return ()
    row = comparison.first_wrong
    computed = () if row is None or row.launch.id != launch else wrong_value_finding.operators_of(row)
    return (f"from the same inputs, its program computes something else: {wrong.finding.what}", *computed)


def _in_eager(outputs: Sequence[OutputError]) -> tuple[str, ...]:
    """What the exported program returns in eager where the model returns NaN or infinities; none if it is not known."""
    differing = [error for error in outputs if error.misplaced or error.fault]
    if differing or not outputs:
        return tuple(map(output_text, differing[:_MAX_OUTPUTS]))
    return (_AS_IN_EAGER,)


def _also_in_eager(finding: Finding, run: RunDir, outputs: Sequence[OutputError]) -> Finding:
    """The finding; its headline says first whether eager was seen to return the same NaN or infinities.

    Args:
        run: with statistics of every tensor. Of several calls only the last one is compared with eager: then nothing
            is said.
        outputs: of its call, against those of eager.
    """
    held = output_values(run).what if len(run.timeline.calls) == 1 else ""
    if not held or not outputs or any(error.fault for error in outputs):
        return finding
    if any(error.misplaced for error in outputs):
        return replace(finding, what=f"not as in eager: {finding.what}")
    special = Special.NAN.value if Special.NAN.value in held else "infinities"
    return replace(finding, what=f"your model computes {special} in eager, too: {finding.what}")


def _with_origin(investigation: Investigation, search: NonFinite) -> Suspicion | None:
    """The first case that no run without its values refutes; None if there is none."""
    measured = investigation.run_measured()
    saved = investigation.runs.tensors(_launches(measured, search))
    folder = investigation.repro.parent / FOLDER
    trials = OriginTrials(measured.run, saved.run, lambda files: investigation.runs.with_files(files).run, folder)
    with investigation.steps.step("try without its values") as note:
        found = trials.first_that_holds(search.cases) or trials.first_by_itself()
        note.text = "no harm of a single value" if found is None else wording.comma_separated(found.tried)
    if found is not None:
        finding = nonfinite.finding_of(measured.diagnosed.dataflow, found)
        return Suspicion(finding, measured.diagnosed, needed=search.needed, saved=saved)
    return _without_refuted(investigation, trials, folder / "rest") if trials.refuted else None


def _without_refuted(investigation: Investigation, trials: OriginTrials, folder: Path) -> Suspicion | None:
    """What is not finite although all that came in is; None if nothing that does harm is."""
    replaced = tuple(replacement for _, replacement in trials.refuted)
    files = trials.files(replaced)
    rest = investigation.runs.with_files(files)
    search = nonfinite.find(rest.diagnosed.dataflow, investigation.options.infinities)
    if rest.verdict is not None or search.finding is None:
        return None
    saved = investigation.runs.tensors(_launches(rest, search), files=files)
    again = OriginTrials(rest.run, saved.run, lambda other: investigation.runs.with_files(other).run, folder, replaced)
    found = again.first_that_holds(search.cases)
    if found is None:
        return None
    finding = nonfinite.finding_of(rest.diagnosed.dataflow, found)
    values = wording.comma_separated([values_text(replacement.held) for replacement in replaced])
    note = f"all this was seen with finite numbers in the place of {values}, too"
    return Suspicion(
        replace(finding, evidence=(*finding.evidence, note)), rest.diagnosed, needed=search.needed, saved=saved
    )


def _launches(result: RunResult, search: NonFinite) -> list[Launch]:
    return [result.run.launch(id_) for id_ in search.needed]


def _with_operator(investigation: Investigation, finding: Finding, run: RunDir) -> Finding:
    """The finding with the operator that made its element, where the package holds the graph of its kernels."""
    where = finding.where
    if where is None or not where.launch or where.element is None:
        return finding
    element = TracedElement(where.launch, where.argument, where.element)
    return with_graph(
        investigation,
        finding,
        run,
        "trace the element",
        lambda scope, folder: trace(run, element, scope, folder),
        with_origin,
    )


CHECK = Check(NONFINITE, look, confirm)
