"""The calls of the whole program that a run is compared with, and the state of the model before and after them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.compare.protocol.measurement import Advance, StateChange
from aoti_debug.compare.protocol.request import (
    CallStates,
    ExportedRun,
    GivenTensors,
    KnownValue,
    ProgramOutput,
    ProgramRun,
    ProgramState,
    Recorded,
    RecordedWeight,
)
from aoti_debug.compare.regions.finder import storage_of
from aoti_debug.compare.regions.recorded_values import Write
from aoti_debug.compare.regions.regions import Regions
from aoti_debug.compare.regions.writes import LastWrites, buffer_strides
from aoti_debug.package.argument_values import Layout
from aoti_debug.package.manifest import Role
from aoti_debug.package.program_graphs import MODEL, SEEDS, Graph, Node, NodeKind, Reference, ValueKey, returned_nodes
from aoti_debug.runs.diagnosis.dataflow import ByteRange, span_of
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir


def call_states(run: RunDir, graph: Graph, regions: Regions) -> tuple[CallStates, ...]:
    """The states of each call of the model whose values before and after it are recorded."""
    finder = _Finder(run, graph, regions.values.writes)
    nodes = [node for node in graph.nodes if node.kind in _STATES and graph.mutators.get(node.name)]
    found = []
    for call in model_calls(run):
        states = (finder.state(node, call) for node in nodes)
        found.append(CallStates(call, tuple(state for state in states if state is not None)))
    return tuple(found)


def model_calls(run: RunDir) -> list[int]:
    """The numbers of the calls of the model, in order."""
    return [call.call for call in run.timeline.calls if call.kind is CallKind.MODEL]


def untouched_states(run: RunDir, graph: Graph) -> Iterator[StateChange]:
    """Yields the weights and buffers that the program overwrites, and that no launch of a call was passed."""
    finder = _Finder(run, graph, {})
    names = {constant.fqn or constant.name for constant in run.manifest.constants}
    for node in graph.nodes:
        if node.kind is NodeKind.WEIGHT and node.target in names and graph.mutators.get(node.name):
            for call in model_calls(run):
                if not finder.arguments(node, call):
                    yield StateChange(name=node.target, call=call, launch="", advance=Advance.UNTOUCHED)


_STATES = (NodeKind.WEIGHT, NodeKind.INPUT)


class _Finder:
    def __init__(self, run: RunDir, graph: Graph, writes: Mapping[LaunchKey, tuple[Write, ...]]) -> None:
        self._run = run
        self._graph = graph
        self._strides = buffer_strides(run.manifest)
        inputs = [node.name for node in graph.nodes if node.kind is NodeKind.INPUT]
        self._inputs = {name: number for number, name in enumerate(inputs)}
        nodes = {c.name: graph.weights.get(c.fqn or c.name, "") for c in run.manifest.constants}
        self._arguments: dict[tuple[int, str], list[tuple[Launch, Argument]]] = defaultdict(list)  # by call and node
        for launch in run.launches:
            if launch.key.kind is CallKind.MODEL:
                for argument in launch.args:
                    base = argument.spec.base or argument.name
                    name = nodes.get(base, base)
                    if name in graph.mutators:
                        self._arguments[launch.key.call, name].append((launch, argument))
        self._written: dict[int, list[Write]] = defaultdict(list)  # by call
        for key, made in writes.items():
            if key.kind is CallKind.MODEL:
                self._written[key.call] += made

    def state(self, node: Node, call: int) -> ProgramState | None:
        """A state in a call; None if what it was before or after the call is not recorded."""
        uses = tuple(self._uses(node, call))
        if not uses:
            return None
        launch, argument = uses[0]
        before = self._recorded(launch, argument, Phase.BEFORE)
        span = span_of(argument)
        writers = [w.launch for w in self._written[call] if span is None or _overlap(w.span, span)]
        after = self._after(node, call, uses, before if not writers else None)
        if before is None or after is None:
            return None
        last = self._graph.mutators[node.name][-1]
        number = self._inputs.get(node.name)
        return ProgramState(
            name=node.target or node.name if number is None else f"input {number}",
            node=node.name,
            mutator=last,
            before=before,
            after=after,
            launch=writers[-1].id if writers else "",
            input=number,
        )

    def _after(
        self, node: Node, call: int, uses: tuple[tuple[Launch, Argument], ...], unwritten: Recorded | None
    ) -> Recorded | None:
        """A state after a call: as the next call began with it, else as the last launch that wrote it left it.

        Args:
            unwritten: the state before the call, for one that no launch wrote.
        """
        following = next(self._uses(node, call + 1), None) if node.kind is NodeKind.WEIGHT else None
        if following is not None:
            return self._recorded(*following, Phase.BEFORE)
        written = [(launch, argument) for launch, argument in uses if argument.written]
        return self._recorded(*written[-1], Phase.AFTER) if written else unwritten

    def arguments(self, node: Node, call: int) -> Sequence[tuple[Launch, Argument]]:
        """The arguments of launches that are a state that the program overwrites, or views of it, in order."""
        return self._arguments.get((call, node.name), ())

    def _uses(self, node: Node, call: int) -> Iterator[tuple[Launch, Argument]]:
        """Yields the arguments that are the whole state, and no view of it."""
        for launch, argument in self.arguments(node, call):
            if argument.name == (argument.spec.base or argument.name) and argument.tensor:
                yield launch, argument

    def _recorded(self, launch: Launch, argument: Argument, phase: Phase) -> Recorded | None:
        saved = argument.files.get(phase)
        if saved is None or not saved.path:
            return None
        path = str(self._run.tensor_path(saved))
        return Recorded(launch.id, argument.name, path, self._strides.get(argument.name, ()))


def _overlap(first: ByteRange | None, second: ByteRange) -> bool:
    return first is None or (first.device == second.device and first.begin < second.end and second.begin < first.end)


def program_runs(
    run: RunDir, reference: Reference, regions: Regions, states: Sequence[CallStates] = ()
) -> tuple[ProgramRun, ...]:
    """One call of the program for each call of the model, with the inputs and weights that its launches read first.

    Args:
        states: what the calls overwrite, to be compared.
    """
    graph = reference.graph("", MODEL)
    if graph is None:
        return ()
    of_call = {call.call: call.states for call in states}
    return tuple(_program_run(run, graph, regions, call, of_call.get(call, ())) for call in model_calls(run))


def exported_run(
    run: RunDir, reference: Reference, regions: Regions, returned: Path | None, states: Sequence[CallStates] = ()
) -> ExportedRun | None:
    """The calls of a run that the exported program is to make too; None if nothing was called, or nothing is kept.

    Args:
        returned: the folder with what the last call returned; None if it was not saved.
        states: what the calls overwrite, to be compared.
    """
    graph = reference.graph("", MODEL)
    calls = model_calls(run)
    returned_in = "" if returned is None else str(returned)
    if graph is None and calls and reference.exported:
        return ExportedRun(calls=len(calls), returned=returned_in, weights=tuple(_weights(run)))
    if graph is None or not calls:
        return None
    seeds = {ValueKey(node.name) for node in graph.nodes if node.target in SEEDS}
    drawn = tuple(tuple(w.recorded for w in _written(run, regions, call, seeds)) for call in calls)
    last = _program_run(run, graph, regions, calls[-1])
    last = replace(last, inputs=(*last.inputs, *drawn[-1]), outputs=())
    return ExportedRun(
        calls=len(calls),
        returned=returned_in,
        weights=tuple(_weights(run)),
        last=last,
        states=tuple(states),
        written=tuple(_written(run, regions, calls[-1], set(returned_values(graph)))),
        untouched=_untouched(run, graph, regions),
        seeds=drawn,
    )


def _weights(run: RunDir) -> Iterator[RecordedWeight]:
    """The weights that launches were passed, before any launch overwrote them: as a whole, or else other views."""
    names = {constant.name: constant.fqn for constant in run.manifest.constants if constant.fqn}
    strides = buffer_strides(run.manifest)
    seen: set[str] = set()
    overwritten: set[str] = set()
    views: dict[str, dict[Layout | None, Recorded]] = defaultdict(dict)
    for launch in run.launches:
        for argument, path in _recorded(run, launch):
            base = argument.spec.base or argument.name
            if base not in names or base in seen | overwritten:
                continue
            if argument.name == base:
                seen.add(base)
                yield RecordedWeight(names[base], path)
            else:
                view = Recorded(launch.id, argument.name, path, strides.get(base, ()), storage_of(argument))
                views[base].setdefault(argument.layout, view)
        overwritten.update(argument.spec.base or argument.name for argument in launch.args if argument.written)
    for base, found in ((base, tuple(found.values())) for base, found in views.items() if base not in seen):
        yield RecordedWeight(names[base], found[0].path, is_view=True, views=found)


def _written(run: RunDir, regions: Regions, call: int, wanted: Set[ValueKey]) -> Iterator[ProgramOutput]:
    """What launches of a call wrote last, of some values."""
    strides = buffer_strides(run.manifest)
    last: dict[ValueKey, ProgramOutput] = {}
    for launch in run.launches:
        if (launch.key.kind, launch.key.call) != (CallKind.MODEL, call) or launch.site.subgraph:
            continue
        for write in regions.values.writes.get(launch.key, ()):
            saved = write.argument.files.get(Phase.AFTER)
            if write.value is None or write.value not in wanted or saved is None or not saved.path:
                continue
            argument = write.argument
            steps = strides.get(argument.name) or strides.get(argument.spec.base, ())
            recorded = Recorded(launch.id, argument.name, str(run.tensor_path(saved)), steps, storage_of(argument))
            last[write.value] = ProgramOutput(launch.id, KnownValue(write.value, recorded))
    yield from last.values()


def returned_values(graph: Graph) -> Iterator[ValueKey]:
    """The values that a graph returns, and those that these are views of."""
    output = graph.nodes[-1].name
    for returned in filter(None, returned_nodes(graph)):
        node = graph.by_name[returned]
        yield graph.value_for(node.name, output)
        while (base := graph.viewed(node)) is not None:
            node = base
            yield graph.value_for(node.name, output)


def _untouched(run: RunDir, graph: Graph, regions: Regions) -> GivenTensors:
    """The weights, buffers and inputs that no launch wrote, and that the graph does not overwrite: see ExportedRun."""
    nodes = {c.name: graph.weights.get(c.fqn or c.name, "") for c in run.manifest.constants}
    spans: dict[str, set[ByteRange]] = defaultdict(set)
    written: set[str] = set()
    for launch in run.launches:
        for argument in launch.args:
            base = argument.spec.base or argument.name
            name, span = nodes.get(base, base), span_of(argument)
            spans[name].update(() if span is None else (span,))
            written.update((name,) if argument.written else ())
    memory: LastWrites[str] = LastWrites()
    for write in (write for writes in regions.values.writes.values() for write in writes):
        if write.span is not None:
            memory.add(write.span, write.argument.name)
    written |= {name for name, own in spans.items() if any(map(memory.to_any_of, own))}
    written |= graph.mutators.keys()
    inputs, weights = ([n for n in graph.nodes if n.kind is kind] for kind in (NodeKind.INPUT, NodeKind.WEIGHT))
    return GivenTensors(
        tuple(node.target for node in weights if node.name not in written),
        tuple(number for number, node in enumerate(inputs) if node.name not in written),
    )


def _program_run(
    run: RunDir, graph: Graph, regions: Regions, call: int, states: tuple[ProgramState, ...] = ()
) -> ProgramRun:
    outputs: list[ProgramOutput] = []
    symbols: dict[str, int] = {}
    for region in regions.regions:
        key = run.launch(region.launch).key
        if (key.kind, key.call, region.graph) == (CallKind.MODEL, call, ""):
            symbols |= region.symbols
            outputs += [ProgramOutput(region.launch, item) for item in region.outputs]
    begin = tuple(_begin(run, graph, regions, call).values())
    return ProgramRun(
        graph="", function=MODEL, inputs=begin, outputs=tuple(outputs), symbols=symbols, call=call, states=states
    )


def _begin(run: RunDir, graph: Graph, regions: Regions, call: int) -> Mapping[ValueKey, KnownValue]:
    """The inputs and weights of a call, as they were before it."""
    strides = buffer_strides(run.manifest)
    weights = {constant.name: constant.fqn or constant.name for constant in run.manifest.constants}
    known: dict[ValueKey, KnownValue] = {}
    views: dict[ValueKey, dict[Layout | None, Recorded]] = defaultdict(dict)
    overwritten: set[str] = set()
    for launch in run.launches:
        if (launch.key.kind, launch.key.call) != (CallKind.MODEL, call):
            continue
        for argument, path in _recorded(run, launch):
            base = argument.spec.base or argument.name
            node = graph.by_name.get(graph.weights.get(weights.get(base, ""), base))
            if node is not None and node.kind is not NodeKind.CALL and node.name not in overwritten:
                recorded = Recorded(launch.id, argument.name, path, strides.get(base, ()), storage_of(argument))
                if argument.name == base:
                    known.setdefault(ValueKey(node.name), KnownValue(ValueKey(node.name), recorded))
                else:
                    views[ValueKey(node.name)].setdefault(argument.layout, recorded)
        for write in regions.values.writes.get(launch.key, ()):
            if write.value is None or launch.site.subgraph:
                continue
            saved = write.argument.files.get(Phase.AFTER)
            if write.value.after:
                overwritten.add(write.value.node)
            elif graph.by_name.get(write.value.node, graph.nodes[-1]).kind is NodeKind.WEIGHT and saved and saved.path:
                # a weight that Inductor has put into the source of a kernel
                place = Recorded(launch.id, write.argument.name, str(run.tensor_path(saved)))
                known.setdefault(write.value, KnownValue(write.value, place))
    for value, (first, *others) in ((value, tuple(parts.values())) for value, parts in views.items()):
        known.setdefault(value, KnownValue(value, first, tuple(others)))
    return known


def _recorded(run: RunDir, launch: Launch) -> Iterator[tuple[Argument, str]]:
    """The arguments that a launch read, each with the file of its tensor."""
    for argument in launch.args:
        saved = argument.files.get(Phase.BEFORE)
        if argument.role in (Role.IN, Role.INOUT, Role.UNKNOWN) and saved is not None and saved.path:
            yield argument, str(run.tensor_path(saved))
