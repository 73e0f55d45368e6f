"""Joins the regions of a run with their measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.compare.comparison import AS_IN_EAGER, NOT_SELECTED, PRIVATE, SILENT, UNREAD, WITHOUT_NODE, Row
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.measure.verdicts import LaunchVerdict, verdict_on
from aoti_debug.compare.protocol.measurement import Inherited, RegionResult
from aoti_debug.compare.protocol.request import Region
from aoti_debug.compare.regions.program_calls import returned_values
from aoti_debug.compare.regions.recorded_values import Write
from aoti_debug.compare.regions.regions import Regions
from aoti_debug.compare.suspects import suspects_of
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.program_graphs import MODEL, USER_TRITON, NodeKind, Reference
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.run import saved_outputs
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir


def shared_memory(returned: Path | None, eager: Path | None, reference: Reference) -> Iterator[str]:
    """Yields a sentence on each output that has memory of an input, and in eager has none of it.

    Args:
        returned, eager: the folders with what the run and the exported program returned; None where it is not known.
    """
    if returned is None or eager is None:
        return
    nodes = () if reference.of_exported is None else reference.of_exported.graphs[0].nodes
    names = [f" ({node.name})" for node in nodes if node.kind is NodeKind.INPUT]
    expected = saved_outputs.shared_inputs(eager)
    for index, inputs in saved_outputs.shared_inputs(returned).items():
        for number in set(inputs) - set(expected.get(index, ())):
            name = names[number] if number < len(names) else ""
            yield (
                f"output {index} has memory of input {number}{name}, and in eager none of it: what is written to one "
                "later, as by another call, changes the other"
            )


def without_eager_nonfinite(run: RunDir, rows: Sequence[Row], outputs: Sequence[OutputError]) -> tuple[Row, ...]:
    """The rows; a launch that is wrong in NaN and infinities alone is not comparable where outputs have those of eager.

    Eager's kernels may overflow where the operators that its program was decomposed to do not, and a kernel as well.
    Only a launch whose elements are read on the way to an output that is not finite can have made such ones.

    Args:
        outputs: all that the last call returned, against the exported program in eager; () if they were not compared.
    """
    is_as_in_eager = bool(outputs) and all(error.is_right and not error.misplaced for error in outputs)
    names = run.manifest.outputs
    nonfinite = {names[error.index] for error in outputs if error.nonfinite and error.index < len(names)} - {""}
    if not is_as_in_eager or not nonfinite:
        return tuple(rows)
    last = max((row.launch.key.call for row in rows), default=0)
    flow = Dataflow(run)
    return tuple(
        _not_comparable(row)
        if row.launch.key.call == last and _overflows(row) and _reaches(flow, row, nonfinite)
        else row
        for row in rows
    )


def _overflows(row: Row) -> bool:
    """True if a launch is wrong, and all that is wrong is NaN or infinite otherwise than it should be.

    Elements that eager's arithmetic loses as well are not wrong: as many fewer of the lost ones surely are.
    """
    if row.verdict is not LaunchVerdict.WRONG:
        return False
    return all(
        not output.bias and output.wrong <= output.lost - output.eager_lost for output in row.outputs if output.wrong
    )


def _reaches(flow: Dataflow, row: Row, names: Set[str]) -> bool:
    """True if each wrong output of a launch is one of these outputs of the model, or is read on the way to one."""
    wrong = {output.argument for output in row.outputs if output.wrong}
    return all(_is_read_for(flow, row.launch, a, names) for a in row.launch.args if a.written and a.name in wrong)


def _is_read_for(flow: Dataflow, launch: Launch, argument: Argument, names: Set[str]) -> bool:
    waiting, seen = [(launch, argument)], set[tuple[LaunchKey, str]]()
    while waiting:
        writer, written = waiting.pop()
        if not names.isdisjoint((written.name, written.spec.base)):
            return True
        for reader, _ in flow.readers(writer, written):
            further = [a for a in reader.args if a.written and (reader.key, a.name) not in seen]
            seen.update((reader.key, a.name) for a in further)
            waiting += [(reader, a) for a in further]
    return False


def _not_comparable(row: Row) -> Row:
    wrong = [output for output in row.outputs if output.wrong]
    texts = [f"{o.wrong} of {wording.pluralize(o.count, 'element')} of {o.argument}" for o in wrong]
    verb = "is" if sum(output.wrong for output in wrong) == 1 else "are"
    reason = (
        f"{wording.comma_separated(texts)} {verb} NaN or infinite otherwise than what its graph gives in float64; "
        f"{AS_IN_EAGER}"
    )
    return replace(row, verdict=LaunchVerdict.NOT_COMPARABLE, reason=reason, outputs=(), suspects=(), compared_bytes=0)


def assemble(
    run: RunDir,
    reference: Reference,
    regions: Regions,
    results: Sequence[RegionResult],
    inherited: Sequence[Inherited],
) -> tuple[Row, ...]:
    """Joins the regions of a run with their measurements; a row for each launch, in order."""
    by_launch = {region.launch: region for region in regions.regions}
    result_of = {result.launch: result for result in results}
    reasons = {item.launch: item.reason for item in regions.uncovered}
    reasons |= dict.fromkeys(regions.inside, PRIVATE) | dict.fromkeys(regions.silent, SILENT)
    differences: dict[str, dict[str, float]] = {}
    for item in inherited:
        differences.setdefault(item.launch, {})[item.argument] = item.relative
    compared = {r.launch for r in results if r.outputs}
    covered = {id_ for region in regions.regions if region.launch in compared for id_ in region.launches}
    members = {id_ for region in regions.regions for id_ in region.launches[:-1]}  # of a later launch's region
    read = {(r.write.launch.key, r.write.argument.name) for of in regions.values.reads.values() for r in of if r.write}
    kept = _kept(run, reference)
    rows = []
    for launch in run.launches:
        region, result = by_launch.get(launch.id), result_of.get(launch.id)
        arguments = [write.argument for write in regions.values.writes.get(launch.key, ())]
        sizes = {a.name: a.layout.bytes for a in arguments if a.layout is not None}
        if region is None or result is None:
            private = sum(sizes.values()) if launch.id in covered and launch.id in regions.inside else 0
            reason = reasons.get(launch.id, NOT_SELECTED)
            rows.append(
                Row(
                    launch=launch,
                    verdict=LaunchVerdict.NOT_COMPARABLE,
                    reason=reason,
                    bytes=sum(sizes.values()),
                    compared_bytes=private,
                    same_code=_runs_same_code(launch),
                    is_unread=_is_unread(regions.values.writes.get(launch.key, ()), read, kept),
                )
            )
            continue
        names = {output.argument for output in result.outputs}
        verdict = verdict_on(result.outputs)
        if launch.id in members:
            names |= sizes.keys() - {output.recorded.argument for output in region.outputs}
        rows.append(
            Row(
                launch=launch,
                verdict=verdict,
                reason=result.failure,
                outputs=result.outputs,
                inherited=differences.get(launch.id),
                together_with=region.launches,
                suspects=suspects_of(reference, region, result, launch.loops) if verdict is LaunchVerdict.WRONG else (),
                notes=(*region.notes, *result.notes, *_without_node(regions.values.writes[launch.key], names, read)),
                bytes=sum(sizes.values()),
                compared_bytes=sum(size for name, size in sizes.items() if name in names),
                same_code=_runs_same_code(launch) or _has_user_kernel(reference, region),
                is_unread=_is_unread(regions.values.writes[launch.key], read, kept),
            )
        )
    return tuple(rows)


def _without_node(writes: Sequence[Write], compared: Set[str], read: Set[tuple[LaunchKey, str]]) -> tuple[str, ...]:
    """Notes about outputs that no node of the graph holds, and that are not compared through their readers either.

    Args:
        read: what launches read, by the launch that wrote it and its argument.
    """
    open_ = [write for write in writes if write.value is None and write.argument.name not in compared]
    are_read = [(write.launch.key, write.argument.name) in read for write in open_]
    return tuple(dict.fromkeys(WITHOUT_NODE if is_read else UNREAD for is_read in are_read))


def _kept(run: RunDir, reference: Reference) -> frozenset[str]:
    """The names of what a call leaves behind: buffers that it returns, inputs and weights, and nodes of those."""
    graph = reference.graph("", MODEL)
    nodes = () if graph is None else (str(value) for value in returned_values(graph))
    given = () if graph is None else (node.name for node in graph.nodes if node.kind is not NodeKind.CALL)
    manifest = run.manifest
    return frozenset((*manifest.outputs, *manifest.inputs, *(c.name for c in manifest.constants), *nodes, *given))


def _is_unread(writes: Sequence[Write], read: Set[tuple[LaunchKey, str]], kept: Set[str]) -> bool:
    """True if no launch reads what a launch wrote, and nothing of it is left after the call.

    Args:
        read: what launches read, by the launch that wrote it and its argument.
        kept: the names of buffers and nodes that are left.
    """
    for write in writes:
        names = {write.argument.name, write.argument.spec.base}
        names |= set() if write.value is None else {write.value.node, str(write.value)}
        if (write.launch.key, write.argument.name) in read or not kept.isdisjoint(names):
            return False
    return bool(writes)


def _runs_same_code(launch: Launch) -> bool:
    """True for a launch that is no generated kernel: it calls an operator, as eager does."""
    return not traits_of(launch.site.kind).compiled_for_layouts


def _has_user_kernel(reference: Reference, region: Region) -> bool:
    graph = reference.graph(region.graph, region.function)
    return graph is not None and any(graph.by_name[name].target.startswith(USER_TRITON) for name in region.nodes)
