"""The regions of a run: for each launch, what the graph computes between what it reads and what it writes.

A launch that did not return has one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region
from aoti_debug.compare.regions.finder import NotClosedError, RegionFinder
from aoti_debug.compare.regions.recorded_values import RecordedValues, frame_of
from aoti_debug.compare.regions.writes import buffer_strides
from aoti_debug.package.program_graphs import Graph, NodeKind, Reference, ValueKey
from aoti_debug.runs.rundir.launch import Argument, Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir


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
    strides = buffer_strides(run.manifest, launch.site.function)

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


UNRETURNED = {  # why a launch is not comparable, by its status
    LaunchStatus.OPEN: "it never returned",
    LaunchStatus.FAILED: "it failed",
    LaunchStatus.NOT_STARTED: "its grid is empty: it was not started",
}


@dataclass(frozen=True)
class Uncovered:
    """A launch whose outputs are not compared.

    Attributes:
        reason: "no node holds what it writes".
    """

    launch: str
    reason: str


@dataclass(frozen=True)
class Regions:
    """The regions of a run, and the launches without one, in order of the launches.

    Attributes:
        inside: launches that are part of later launches' regions only: nothing that they write holds a node's value.
        silent: launches that write no tensor.
        values: what each launch reads and writes.
    """

    regions: tuple[Region, ...]
    uncovered: tuple[Uncovered, ...]
    inside: frozenset[str]
    silent: frozenset[str]
    values: RecordedValues = field(repr=False, compare=False)


def find_regions(run: RunDir, reference: Reference) -> Regions:
    """Finds the region of every launch of a run at level 1."""
    finder = RegionFinder(run, reference)
    regions: list[Region] = []
    uncovered: list[Uncovered] = []
    silent: set[str] = set()
    for launch in run.launches:
        if launch.status is not LaunchStatus.RETURNED:
            uncovered.append(Uncovered(launch.id, UNRETURNED[launch.status]))
        elif not finder.values.writes[launch.key]:
            silent.add(launch.id)
        else:
            try:
                regions.append(finder.region(launch))
            except NotClosedError as error:
                uncovered.append(Uncovered(launch.id, str(error)))
    inside = {id_ for region in regions for id_ in region.launches} - {region.launch for region in regions}
    remaining = tuple(launch for launch in uncovered if launch.launch not in inside)
    return Regions(tuple(regions), remaining, frozenset(inside), frozenset(silent), finder.values)


def find_region(run: RunDir, reference: Reference, launch: Launch) -> Region | None:
    """Finds the region of one launch of a run at level 1; None if it has none."""
    finder = RegionFinder(run, reference, frame_of(launch))
    if launch.status is not LaunchStatus.RETURNED or not finder.values.writes[launch.key]:
        return None
    try:
        return finder.region(launch)
    except NotClosedError:
        return None
