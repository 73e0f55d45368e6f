"""Pairs the launches of two runs: by kernels and arguments in order, or by the values that they read and write."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from hashlib import blake2b
from typing import Any

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.compare.diff.pairs import (
    LaunchPair,
    PairedBy,
    Pairing,
    RecordedTensor,
    RecordedTensors,
    TensorPair,
    without_leftovers,
)
from aoti_debug.compare.regions.recorded_values import RecordedValues
from aoti_debug.package.argument_values import Number
from aoti_debug.package.program_graphs import Graph, NodeKind, Reference, ValueKey
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir

_Graph = tuple[str, str]


class Expressions:
    """The expressions of the values of one graph.

    Args:
        known: names of values that are not expanded where other values are computed from them.
    """

    def __init__(self, graph: Graph, known: Mapping[ValueKey, str] | None = None) -> None:
        self._expressions: dict[ValueKey, str] = {}
        self._names: dict[ValueKey, str] = dict(known or {})
        inputs, met = 0, Counter[str]()
        for node in graph.nodes:
            if node.kind is NodeKind.INPUT:
                name, inputs = f"input {inputs}", inputs + 1
            elif node.kind in (NodeKind.WEIGHT, NodeKind.SUBGRAPH):
                name = f"{node.kind.value} {node.target}"
            else:  # of equal calls, such as two of random numbers, each has a name of its own
                read = {read: self._names[graph.value_for(read, node.name)] for read in node.inputs}
                name = _digest([node.target, _named(list(node.args), read), _named(dict(node.kwargs), read)])
                met[name] += 1
                name = name if met[name] == 1 else _digest([name, met[name]])
            self._add(ValueKey(node.name), name)
            for position, overwritten in enumerate(node.mutates):
                before = self._names[graph.value_for(overwritten, node.name)]
                self._add(ValueKey(overwritten, node.name), _digest([name, before, position]))

    def of(self, value: ValueKey) -> str:
        """The name of a value's expression."""
        return self._expressions[value]

    def _add(self, value: ValueKey, expression: str) -> None:
        self._expressions[value] = expression
        self._names.setdefault(value, expression)


def _named(value: Any, names: Mapping[str, str]) -> Any:
    """An argument with the expressions of nodes in place of their names."""
    if isinstance(value, list | tuple):
        return [_named(item, names) for item in value]
    if not isinstance(value, Mapping):
        return value
    if isinstance(node := value.get("node"), str):
        return {"expression": names[node]}
    return {key: _named(item, names) for key, item in value.items() if key != "device"}


def _digest(parts: list[Any]) -> str:
    return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


class SameExpressions:
    """The pairs whose values are computed by the same expression.

    A value that both runs have stored has one name in both: what is computed from it is looked at apart from the way in
    which it was itself computed.

    Args:
        a, b: the values of the two runs.
    """

    def __init__(self, pairing: Pairing, a: RecordedValues, b: RecordedValues) -> None:
        self._a, self._b = _Side(a), _Side(b)
        for pair in pairing.pairs:
            for number, write in enumerate(pair.writes):
                name = f"{pair.launch.id} {number}"
                self._a.give(write.a, name)
                self._b.give(write.b, name)

    def of(self, pair: LaunchPair) -> bool:
        """True if all that a pair wrote is computed by the same expressions; False also where that is not known.

        What no node of either graph holds, such as partial sums, is looked at where it is read.
        """
        return all(map(self._is_same, pair.writes))

    def _is_same(self, write: TensorPair) -> bool:
        first, second = self._a.expression(write.a), self._b.expression(write.b)
        return first == second


class _Side:
    """The values of one run."""

    def __init__(self, values: RecordedValues) -> None:
        self._values = values
        self._written: Mapping[tuple[LaunchKey, str], ValueKey | None] = {
            (key, write.argument.name): write.value for key, writes in values.writes.items() for write in writes
        }
        self._known: dict[_Graph, dict[ValueKey, str]] = {}
        self._expressions: dict[_Graph, Expressions] = {}

    def give(self, tensor: RecordedTensor, name: str) -> None:
        """Names the value that a launch wrote; the first name counts."""
        graph, value = self._place(tensor)
        if graph is not None and value is not None:
            self._known.setdefault((graph.name, graph.function), {}).setdefault(value, name)

    def expression(self, tensor: RecordedTensor) -> str | None:
        """The expression of what a launch wrote; None if no node of its graph holds it."""
        graph, value = self._place(tensor)
        if graph is None or value is None:
            return None
        key = graph.name, graph.function
        if key not in self._expressions:
            self._expressions[key] = Expressions(graph, self._known.get(key))
        return self._expressions[key].of(value)

    def _place(self, tensor: RecordedTensor) -> tuple[Graph | None, ValueKey | None]:
        launch = tensor.launch
        return self._values.graph(launch), self._written.get((launch.key, tensor.argument.name))


_Name = Hashable
Call = tuple[CallKind, int]


def pair_by_launch(a: RunDir, b: RunDir) -> Pairing:
    """Pairs the launches of each call; those that only one run has are left over."""
    first, second = launches_by_call(a), launches_by_call(b)
    tensors = RecordedTensors(a), RecordedTensors(b)
    pairs: list[LaunchPair] = []
    only_a: list[Launch] = []
    only_b: list[Launch] = []
    for call in sorted(first.keys() | second.keys()):
        launches, others = first.get(call, []), second.get(call, [])
        paired = pair_launches(launches, others, *tensors)
        pairs += paired
        only_a += _without(launches, [pair.counterparts[0] for pair in paired])
        only_b += _without(others, [pair.launch for pair in paired])
    pairs.sort(key=lambda pair: pair.launch.sequence)
    return Pairing(PairedBy.LAUNCH, tuple(pairs), tuple(only_a), tuple(only_b))


def pair_launches(
    a: Sequence[Launch], b: Sequence[Launch], of_a: RecordedTensors, of_b: RecordedTensors
) -> list[LaunchPair]:
    """Pairs the launches of two calls, as far as their kernels and arguments are the same in the same order."""
    pairs = [_pair(launch, other, of_a, of_b) for launch, other in _aligned(a, b)]
    return without_leftovers(pairs, list(_without(b, [pair.launch for pair in pairs])), of_b.run.manifest)


def launches_by_call(run: RunDir) -> dict[Call, list[Launch]]:
    """The launches of each call, in order."""
    calls: dict[Call, list[Launch]] = defaultdict(list)
    for launch in run.launches:
        calls[launch.key.kind, launch.key.call].append(launch)
    return calls


def _aligned(a: Sequence[Launch], b: Sequence[Launch]) -> Iterator[tuple[Launch, Launch]]:
    first, second = [_name(launch) for launch in a], [_name(launch) for launch in b]
    if first == second:
        yield from zip(a, b, strict=True)
        return
    begin = next((i for i, names in enumerate(zip(first, second, strict=False)) if names[0] != names[1]), len(first))
    begin = min(begin, len(second))
    yield from zip(a[:begin], b[:begin], strict=True)
    for block in SequenceMatcher(None, first[begin:], second[begin:], autojunk=False).get_matching_blocks():
        i, j = begin + block.a, begin + block.b
        yield from zip(a[i : i + block.size], b[j : j + block.size], strict=True)


def _name(launch: Launch) -> Hashable:
    return launch.kernel, launch.loops, launch.site.subgraph, tuple(arg.name for arg in launch.site.args)


def _without(launches: Sequence[Launch], paired: Sequence[Launch]) -> Iterator[Launch]:
    known = {launch.key for launch in paired}
    return (launch for launch in launches if launch.key not in known)


def _pair(a: Launch, b: Launch, of_a: RecordedTensors, of_b: RecordedTensors) -> LaunchPair:
    read, unpaired_reads = _tensors(of_a.reads(a), of_b.reads(b))
    written, unpaired_writes = _tensors(of_a.writes(a), of_b.writes(b))
    return LaunchPair(
        launch=b,
        counterparts=(a,),
        reads=read,
        writes=written,
        unpaired_reads=unpaired_reads,
        unpaired_writes=unpaired_writes,
        numbers=tuple(_numbers(a, b)),
    )


def _tensors(
    a: Sequence[RecordedTensor], b: Sequence[RecordedTensor]
) -> tuple[tuple[TensorPair, ...], tuple[str, ...]]:
    first = {tensor.argument.name: tensor for tensor in a}
    paired = tuple(TensorPair(first[t.argument.name], t) for t in b if t.argument.name in first)
    return paired, tuple(t.argument.name for t in b if t.argument.name not in first)


def _numbers(a: Launch, b: Launch) -> Iterator[str]:
    for first, second in zip(a.args, b.args, strict=True):
        numbers = isinstance(first.before, Number) and isinstance(second.before, Number)
        if numbers and first.before != second.before:
            yield first.name


def pair_by_value(a: RunDir, reference_a: Reference, b: RunDir, reference_b: Reference) -> Pairing:
    """Pairs each launch of `b` with those of `a` that wrote the same values of the program.

    Values are the same if they are computed by the same expression of the model's inputs and weights; where a lowering
    decomposes an operator in another way, if their nodes have the same name and operator.
    """
    first, second = _Values(a, reference_a), _Values(b, reference_b)
    known = first.index()
    pairs: list[LaunchPair] = []
    only_b: list[Launch] = []
    met: set[LaunchKey] = set()
    for launch in b.launches:
        written = [(known.counterpart(names, tensor), tensor) for names, tensor in second.writes(launch)]
        if not any(other is not None for other, _ in written):
            only_b.append(launch)
            continue
        read = [(known.counterpart(names, tensor), tensor) for names, tensor in second.reads(launch)]
        counterparts = {other.launch.key: other.launch for other, _ in written if other is not None}
        met |= counterparts.keys()
        pairs.append(
            LaunchPair(
                launch=launch,
                counterparts=tuple(counterparts.values()),
                reads=_pairs(read),
                writes=_pairs(written),
                unpaired_reads=tuple(tensor.argument.name for other, tensor in read if other is None),
                unpaired_writes=tuple(tensor.argument.name for other, tensor in written if other is None),
            )
        )
    only_a = tuple(launch for launch in a.launches if launch.key not in met)
    return Pairing(PairedBy.VALUE, tuple(without_leftovers(pairs, only_b, b.manifest)), only_a, tuple(only_b))


def _pairs(found: list[tuple[RecordedTensor | None, RecordedTensor]]) -> tuple[TensorPair, ...]:
    return tuple(TensorPair(other, tensor) for other, tensor in found if other is not None)


class _Index:
    """The tensors of a run by the names of their values, the best name first."""

    def __init__(self) -> None:
        self._tensors: dict[_Name, RecordedTensor] = {}

    def add(self, names: tuple[_Name, ...], tensor: RecordedTensor) -> None:
        for name in names:
            self._tensors.setdefault(name, tensor)

    def counterpart(self, names: tuple[_Name, ...], tensor: RecordedTensor) -> RecordedTensor | None:
        """The tensor of the best of these names that has the dtype and number of elements of another one."""
        found = (self._tensors[name] for name in names if name in self._tensors)
        return next((other for other in found if _kind(other) == _kind(tensor)), None)


class _Values:
    """The values that the launches of one run read and wrote."""

    def __init__(self, run: RunDir, reference: Reference) -> None:
        self._run = run
        self._recorded = RecordedValues(run, reference)
        self._tensors = RecordedTensors(run)
        self._by_graph: dict[tuple[str, str], Expressions] = {}

    def index(self) -> _Index:
        """What the launches wrote, and what they read of what none of them wrote."""
        index = _Index()
        for launch in self._run.launches:
            for names, tensor in self.reads(launch):
                index.add(names, tensor)
            for names, tensor in self.writes(launch):
                index.add(names, tensor)
        return index

    def writes(self, launch: Launch) -> Iterator[tuple[tuple[_Name, ...], RecordedTensor]]:
        """Yields what a launch wrote, with the names of the values."""
        values = {write.argument.name: write.value for write in self._recorded.writes.get(launch.key, ())}
        for tensor in self._tensors.writes(launch):
            if tensor.argument.name in values:
                yield self._names(launch, values[tensor.argument.name]), tensor

    def reads(self, launch: Launch) -> Iterator[tuple[tuple[_Name, ...], RecordedTensor]]:
        """Yields what a launch read, with the names of the values; what it wrote, as it was written."""
        found = {read.argument.name: read for read in self._recorded.reads.get(launch.key, ())}
        for tensor in self._tensors.reads(launch):
            read = found.get(tensor.argument.name)
            if read is None or (read.value is None and read.write is None and tensor.argument.written):
                continue  # the launch itself makes its value
            whole = tensor if read.write is None else _written(read.write.launch, read.write.argument.name, tensor)
            yield self._names(launch, read.value), whole

    def _names(self, launch: Launch, value: ValueKey | None) -> tuple[_Name, ...]:
        graph = self._recorded.graph(launch)
        if value is None or graph is None:
            return ()
        frame = (launch.key.kind, launch.key.call, launch.site.subgraph, launch.loops)
        return (frame, self._expression(graph, value)), (frame, value, graph.by_name[value.node].target)

    def _expression(self, graph: Graph, value: ValueKey) -> str:
        expressions = self._by_graph.get((graph.name, graph.function))
        if expressions is None:
            expressions = self._by_graph[graph.name, graph.function] = Expressions(graph)
        return expressions.of(value)


def _kind(tensor: RecordedTensor) -> tuple[str, int] | None:
    layout = tensor.argument.layout
    return None if layout is None else (layout.dtype, layout.numel)


def _written(launch: Launch, name: str, read: RecordedTensor) -> RecordedTensor:
    """A tensor as the launch that wrote it left it, if that was recorded."""
    argument = launch.argument(name)
    written = None if argument is None else RecordedTensor(launch, argument, Phase.AFTER)
    return written if written is not None and written.is_known else read
