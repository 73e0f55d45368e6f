"""Compares every launch of a recorded run with the graph that its kernels were generated from."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.comparison import Beginning, Comparison, Row, SettingTrial
from aoti_debug.compare.evaluation_process import EvaluatedRun, EvaluationProcess, evaluate
from aoti_debug.compare.measure.output_errors import (
    OutputError,
    errors,
    of_other_kind,
    of_program,
    with_casts,
    with_double,
    with_faults,
)
from aoti_debug.compare.measure.verdicts import LaunchVerdict, is_rounded_otherwise, verdict_on_output
from aoti_debug.compare.precision_setting import PRECISION
from aoti_debug.compare.protocol.measurement import Measurement, RegionResult, StateChange
from aoti_debug.compare.protocol.messages import Refusal
from aoti_debug.compare.protocol.request import CompareRequest, Region
from aoti_debug.compare.regions.program_calls import call_states, exported_run, program_runs, untouched_states
from aoti_debug.compare.regions.regions import Regions, find_regions
from aoti_debug.compare.rows import assemble, shared_memory, without_eager_nonfinite
from aoti_debug.compare.suspects import (
    InexactOperator,
    UndefinedOperator,
    alteration_of,
    changed_text,
    is_proof,
    overwrites_states,
    overwriting,
)
from aoti_debug.package import program_graphs, recording_settings
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.program_graphs import MODEL, Graph, NodeKind, Reference
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.package.recording_settings import EVERYTHING, SiteFilter
from aoti_debug.runs.run import saved_outputs
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import EMBEDDED

_parsed = functools.lru_cache(maxsize=2)(program_graphs.from_json)  # a command asks for that of a run several times


def first_difference(
    rows: Iterable[Row], regions: Iterable[Region], results: Iterable[RegionResult], reference: Reference
) -> Beginning | None:
    """The first launch whose result is not eager's for the same inputs; None if there is none."""
    region_of = {region.launch: region for region in regions}
    result_of = {result.launch: result for result in results}
    for row in rows:
        region = region_of.get(row.launch.id)
        graph = None if region is None else reference.graph(region.graph, region.function)
        if graph is None:
            continue
        for output in sorted(row.outputs, key=lambda output: not output.misplaced):
            if output.misplaced or is_rounded_otherwise(output) or _is_ill_conditioned(output):
                result = result_of.get(row.launch.id, RegionResult(launch=row.launch.id))
                return _beginning(row, output, result, graph, reference)
    return None


def _is_ill_conditioned(output: Measurement) -> bool:
    return verdict_on_output(output) is LaunchVerdict.ILL_CONDITIONED


def _beginning(row: Row, output: Measurement, result: RegionResult, graph: Graph, reference: Reference) -> Beginning:
    """The beginning in an output."""
    node = graph.by_name.get(result.begins)
    is_of_other_kind = bool(output.misplaced) == bool(result.share)
    if node is not None and (is_of_other_kind or not _depends(graph, output.value, node.name)):
        node = None  # it made another output of the launch so
    named = node or graph.by_name.get(output.value)
    kind = node.types[0] if node is not None and node.types else None
    return Beginning(
        launch=row.launch.id,
        argument=output.argument,
        misplaced=output.misplaced,
        count=output.count,
        dtype=output.dtype,
        node="" if node is None else node.name,
        operator="" if node is None else node.target,
        line=None if named is None else reference.line(named),
        rounded_to=kind.dtype if kind is not None and result.share else "",
        share=result.share if node is not None else 0.0,
        sensitivity=output.sensitivity if _is_ill_conditioned(output) else 0.0,
    )


def _depends(graph: Graph, value: str, node: str) -> bool:
    """True if a value is a node's, or is computed from it."""
    waiting, seen = [value], {value}
    while waiting:
        name = waiting.pop()
        if name == node:
            return True
        read = graph.by_name[name].inputs if name in graph.by_name else ()
        waiting += [other for other in read if other not in seen]
        seen.update(read)
    return False


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The launches of a run to compare, and what their evaluation needs.

    Attributes:
        filters: the launches to compare, by what they launch.
        launches: of these, the ones to compare, "0.36", with the launches that they can only be compared through; None
            for all.
        metric: "FILE.py:FUNCTION"; "" for none.
        inherited: also evaluate the whole program, for the inherited errors.
        user_code: what registers operators, beside that of the package.
        exported: the program that the package was built from; None if it is not known.
        outputs: the folder with what the run returned in its last call; None if it was not saved.
    """

    filters: SiteFilter = EVERYTHING
    launches: frozenset[str] | None = None
    metric: str = ""
    inherited: bool = True
    user_code: UserCode = UserCode()
    exported: Path | None = None
    outputs: Path | None = None


def compare_run(
    run: RunDir, scope: Scope, folder: Path, steps: Steps, prepared: EvaluationProcess | None = None
) -> Comparison:
    """Compares the launches of a run that saved tensors.

    Args:
        folder: for the request and the output of the process that evaluates the graph.
        prepared: that process; None to start one.

    Raises:
        UsageError: no launch is in the scope.
        ArtifactError: the package holds no reference.
        TargetError: the program cannot be evaluated.
        RunDirError: the run's package was not found, or is another one.
    """
    reference, package = _exported_alone(run) if has_exported_alone(run) else reference_of(run)
    graph = reference.graph("", MODEL)
    recording_settings.require_names(run.manifest, scope.filters, str(package))
    with steps.step("plan") as note:
        regions = _of_launches(_selected(find_regions(run, reference), run, scope.filters), scope.launches)
        note.text = wording.pluralize(len(regions.regions), "region")
    with steps.step("evaluate") as note:
        states = () if graph is None else call_states(run, graph, regions)
        programs = program_runs(run, reference, regions, states) if scope.inherited else ()
        request = replace(
            request_for(run, package, scope, regions.regions),
            programs=programs,
            exported_run=exported_run(run, reference, regions, scope.outputs, states),
        )
        total = len(regions.regions)
        evaluated = evaluate(request, folder, lambda done: steps.advance(done, total), prepared)
        count, memory = wording.pluralize(len(evaluated.results), "region"), wording.byte_size(evaluated.peak_bytes)
        note.text = f"{count} in three arithmetics, {memory}"
    outputs = _output_errors(scope.outputs, evaluated, reference)
    rows = assemble(run, reference, regions, evaluated.results, evaluated.inherited)
    rows = without_eager_nonfinite(run, rows, outputs)
    untouched = () if graph is None else untouched_states(run, graph)
    changes = tuple(_with_input_names(_of_each_call((*untouched, *evaluated.states)), reference))
    eager = None if evaluated.exported_outputs is None else Path(evaluated.exported_outputs.eager)
    comparison = Comparison(
        run=run,
        rows=rows,
        program_failure=evaluated.program_failure,
        states=changes,
        peak_bytes=evaluated.peak_bytes,
        states_failure=evaluated.states_failure or _unfollowed_states(reference),
        outputs=outputs,
        alteration=None if evaluated.altered is None else alteration_of(evaluated.altered, reference),
        outputs_missing=_outputs_missing(scope.outputs, evaluated),
        refusal=evaluated.refusal,
        refusal_line=line_of_refusal(evaluated.refusal, reference),
        program="" if scope.exported is None else str(scope.exported.absolute()),
        undefined=tuple(_undefined(evaluated, reference)),
        inexact=tuple(_inexact(evaluated, reference)),
        overwriting=tuple(overwriting(changes, reference)),
        shared=tuple(shared_memory(scope.outputs, eager, reference)),
    )
    if not comparison.differing_outputs and not comparison.suspects_of_rounding:
        return comparison
    drawn = request.exported_run is not None and any(request.exported_run.seeds)
    return replace(
        comparison,
        beginning=first_difference(rows, regions.regions, evaluated.results, reference),
        setting=SettingTrial(PRECISION, "", "the program draws random numbers, others in each run") if drawn else None,
    )


def _outputs_missing(returned: Path | None, evaluated: EvaluatedRun) -> str:
    if evaluated.refusal is not None:
        return ""
    if returned is not None and evaluated.exported_outputs is not None:
        reasons = saved_outputs.unsaved(returned)
        return ", ".join(f"output {index} ({reason})" for index, reason in reasons.items())
    if returned is None:
        return "what the model returns (the run did not save it)"
    why = evaluated.states_failure or evaluated.program_failure or "the package does not hold the exported program"
    return f"what the model returns ({why})"


def line_of_refusal(refusal: Refusal | None, reference: Reference) -> ModelLine | None:
    """The model line of the operator that raises in eager; None where none does, or it is not known."""
    exported = reference.of_exported
    if refusal is None or exported is None or refusal.node not in exported.graphs[0].by_name:
        return None
    return reference.line(exported.graphs[0].by_name[refusal.node])


def _undefined(evaluated: EvaluatedRun, reference: Reference) -> Iterator[UndefinedOperator]:
    exported = reference.of_exported
    for found in evaluated.undefined if exported is not None else ():
        assert exported is not None
        node = exported.graphs[0].by_name[found.node]
        yield UndefinedOperator(
            node=node.name, operator=node.target, seen=found.seen, outputs=found.outputs, line=reference.line(node)
        )


def _inexact(evaluated: EvaluatedRun, reference: Reference) -> Iterator[InexactOperator]:
    exported = reference.of_exported
    for found in evaluated.inexact if exported is not None else ():
        assert exported is not None
        node = exported.graphs[0].by_name[found.node]
        yield InexactOperator(
            node=node.name, operator=node.target, seen=found.seen, is_open=found.is_open, line=reference.line(node)
        )


def _with_input_names(states: Iterable[StateChange], reference: Reference) -> Iterator[StateChange]:
    """Yields the states; an input, "input 0", with its name in the exported program: "input 0 (cache)"."""
    nodes = () if reference.of_exported is None else reference.of_exported.graphs[0].nodes
    inputs = [node.name for node in nodes if node.kind is NodeKind.INPUT]
    names = {f"input {number}": f"input {number} ({name})" for number, name in enumerate(inputs)}
    return (replace(state, name=names.get(state.name, state.name)) for state in states)


def _output_errors(returned: Path | None, evaluated: EvaluatedRun, reference: Reference) -> tuple[OutputError, ...]:
    """The errors of what the run returned, against the exported program if it was called."""
    faults: dict[int, str] = {}
    for faulty in evaluated.faulty_outputs:
        faults.setdefault(faulty.index, faulty.fault)
    if returned is None:
        return ()
    actual, expected = saved_outputs.saved(returned), evaluated.exported_outputs
    if expected is None:
        return with_faults((), faults, actual)
    eager = saved_outputs.saved(Path(expected.eager))
    all_errors = errors(actual, eager)
    found = with_casts(of_program(all_errors, reference.dtypes_behind), reference.computed_behind)
    found = tuple(replace(error, moved=evaluated.noise.get(error.index)) for error in found)
    if expected.double:
        found = with_double(found, actual, eager, saved_outputs.saved(Path(expected.double)))
    changed = () if evaluated.altered is None else evaluated.altered.outputs
    right = {error.index for error in found if error.is_right}
    known = {error.index for error in found}
    for output in changed:
        if is_proof(output) and (output.index in right or output.index not in known):
            faults.setdefault(output.index, changed_text(output))
    other = of_other_kind(actual, eager)
    faults = {index: fault for index, fault in faults.items() if index not in {error.index for error in other}}
    return tuple(sorted((*with_faults(found, faults, actual), *other), key=lambda error: error.index))


def request_for(run: RunDir, package: Path, scope: Scope, regions: tuple[Region, ...]) -> CompareRequest:
    """The request to evaluate regions of a run of a package."""
    code = scope.user_code.after(run.manifest.imports, run.manifest.libraries)
    return CompareRequest(
        package=str(package),
        device=run.manifest.device,
        regions=regions,
        metric=scope.metric,
        imports=code.imports,
        libraries=tuple(map(str, code.libraries)),
        exported=str(scope.exported or ""),
        torch_settings=run.info.torch_settings,
        inputs=str(run.inputs or ""),
        is_of_host=run.info.host == EMBEDDED,
    )


def _of_each_call(changes: Iterable[StateChange]) -> tuple[StateChange, ...]:
    """One change for each state and call: the last one, which is against the exported program where that is known."""
    last = {(change.call, change.name): change for change in changes}
    return tuple(sorted(last.values(), key=lambda change: change.call))


def exported_of(model: Path, exported: Path | None) -> Path | None:
    """The exported program: the one that is given, the model itself, or the one that a package leaves its weights in.

    None without any.
    """
    if not model.is_file() or exported is not None:
        return exported
    found = archive.inspect(model)
    if found.kind is ArtifactKind.INSTRUMENTED and (weights := found.manifest().weights) is not None:
        return Path(weights.path)
    return model if found.kind is ArtifactKind.EXPORTED else None


def has_reference(run: RunDir) -> bool:
    """True if the package of a run holds the graph that its kernels were generated from."""
    return run.package is not None and program_graphs.MEMBER in archive.inspect(run.package).members


def has_exported_alone(run: RunDir) -> bool:
    """True if the package holds only the graph of an exported program that is not lowered to its kernels here."""
    return run.package is not None and program_graphs.EXPORTED_MEMBER in archive.inspect(run.package).members


def _exported_alone(run: RunDir) -> tuple[Reference, Path]:
    package = archive.inspect(run.required_package)
    return _parsed(package.read(program_graphs.EXPORTED_MEMBER)), package.path


def lowered_otherwise(run: RunDir) -> str:
    """The first difference of a package, which holds its exported program alone, from what that is lowered to here."""
    return _exported_alone(run)[0].failure


def _unfollowed_states(reference: Reference) -> str:
    """The reason why what a model overwrites is not compared, of an exported program alone; "" if it is, or nothing."""
    is_alone = bool(reference.exported) and not reference.graphs
    return reference.failure if is_alone and overwrites_states(reference.exported[0]) else ""


def reference_of(run: RunDir) -> tuple[Reference, Path]:
    """The reference in the package of a run, and the package.

    Raises:
        ArtifactError: the package holds none.
        RunDirError: the package was not found, or is another one.
    """
    package = archive.inspect(run.required_package)
    if package.kind is not ArtifactKind.INSTRUMENTED or program_graphs.MEMBER not in package.members:
        raise ArtifactError(
            f"{package.path} does not hold the graph that it was compiled from",
            hint="build the exported program again with this version of aoti-debug",
        )
    reference = _parsed(package.read(program_graphs.MEMBER))
    if not reference.graphs:
        raise ArtifactError(
            f"{package.path} holds no graph: {reference.failure or 'this torch did not report any'}",
            hint="use a torch from 2.11 on",
        )
    return reference, package.path


def _selected(regions: Regions, run: RunDir, filters: SiteFilter) -> Regions:
    """The regions of the launches that pass the filters.

    Raises:
        UsageError: none does.
    """
    if not filters:
        return regions
    sites = filters.site_ids(run.manifest.sites)
    kept = tuple(region for region in regions.regions if run.launch(region.launch).site.id in sites)
    if not kept:
        criterion, pattern = filters.patterns()[0]
        launched = {launch.site.id: launch.site for launch in run.launches}.values()
        raise UsageError(
            f"no launch that can be compared passes {filters.options}",
            hint=run_directory.name_hint(pattern, recording_settings.known_names(launched, criterion)),
        )
    return replace(regions, regions=kept)


def _of_launches(regions: Regions, launches: frozenset[str] | None) -> Regions:
    """The regions that one of these launches belongs to."""
    if launches is None:
        return regions
    return replace(regions, regions=tuple(r for r in regions.regions if not launches.isdisjoint(r.launches)))
