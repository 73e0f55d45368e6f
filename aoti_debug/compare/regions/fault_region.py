"""The region of a launch that did not return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aoti_debug.base.abi import Phase
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.compare.regions.recorded_values import RecordedValues, frame_of
from aoti_debug.compare.regions.writes import buffer_strides
from aoti_debug.package.reference.program import Graph, NodeKind, Reference, ValueKey
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Argument, Launch


def fault_region(run: RunDir, reference: Reference, launch: Launch) -> Region | None:
    """The region of a launch that did not return; None if its graph is not in the reference.

    Values that were not recorded are no inputs of it: its nodes may not all be evaluable.
    """
    values = RecordedValues(run, reference)
    graph = values.graph(launch)
    if graph is None:
        return None
    held = [value for a in launch.args if a.written and (value := values.held_by(launch, a)) is not None]
    targets = [*held, *(ValueKey(v.node, after) for v in held for after in graph.mutators.get(v.node, ()))]
    symbols = values.symbols(launch)
    strides = buffer_strides(run.manifest)

    def recorded(of: Launch, argument: Argument, phase: Phase) -> Recorded | None:
        saved = argument.files.get(phase)
        if saved is None or not saved.path:
            return None
        name, base = argument.name, argument.spec.base
        return Recorded(of.id, name, str(run.tensor_path(saved)), strides.get(name) or strides.get(base, ()))

    known: dict[ValueKey, KnownValue] = {}
    for read in values.inputs(launch):
        held_before = recorded(launch, read.argument, Phase.BEFORE)
        if read.value is not None and held_before is not None and read.value not in targets:
            known.setdefault(read.value, KnownValue(read.value, held_before))
    upstream: dict[ValueKey, KnownValue] = {}
    for earlier in values.launches:
        if frame_of(earlier) != frame_of(launch) or earlier.sequence >= launch.sequence:
            continue
        for reading in values.reads[earlier.key]:
            if reading.value is not None and (before := recorded(earlier, reading.argument, Phase.BEFORE)):
                upstream.setdefault(reading.value, KnownValue(reading.value, before))
        for write in values.writes[earlier.key]:
            if write.value is not None and (after := recorded(earlier, write.argument, Phase.AFTER)):
                upstream.setdefault(write.value, KnownValue(write.value, after))
    nodes = graph.sorted(_between(graph, known, targets or _calls(graph)))
    return Region(
        launch=launch.id,
        launches=(launch.id,),
        graph=graph.name,
        function=graph.function,
        nodes=nodes,
        inputs=tuple(known.values()),
        outputs=(),
        symbols=symbols.known(),
        upstream=tuple(upstream.values()),
    )


def _calls(graph: Graph) -> Iterable[ValueKey]:
    return (ValueKey(node.name) for node in graph.nodes if node.kind is NodeKind.CALL)


def _between(graph: Graph, known: Mapping[ValueKey, KnownValue], targets: Iterable[ValueKey]) -> set[str]:
    """The calls that targets depend on, up to known values."""
    pending = list(targets)
    found: set[str] = set()
    while pending:
        value = pending.pop()
        name = value.after or value.node
        if value in known or name in found or graph.by_name[name].kind is not NodeKind.CALL:
            continue
        found.add(name)
        pending += [graph.value_for(item, name) for item in graph.by_name[name].inputs]
    return found
