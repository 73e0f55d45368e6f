"""The state of a run's model: weights, buffers and inputs that its program overwrites, before and after each call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.compare.protocol.measurement import Advance, StateChange
from aoti_debug.compare.protocol.request import CallStates, ProgramState, Recorded
from aoti_debug.compare.regions.recorded_values import Write
from aoti_debug.compare.regions.regions import Regions
from aoti_debug.compare.regions.writes import buffer_strides
from aoti_debug.package.program_graphs import Graph, Node, NodeKind
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
