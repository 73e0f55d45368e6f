"""Finds, for a launch, the part of the graph between the tensors that it reads and those that it writes.

Where a launch reads a buffer that holds no node's value (a partial sum, a copy in another layout), the region also
takes in the launch that wrote it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from functools import cached_property

from aoti_debug.base.abi import Phase
from aoti_debug.compare.protocol.request import KnownValue, Recorded, Region, is_kept_input
from aoti_debug.compare.regions.recorded_values import Frame, Read, RecordedValues, Write, frame_of
from aoti_debug.compare.regions.writes import buffer_strides
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import FOLDING, MODEL, Graph, NodeKind, Reference, ValueKey
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir

SUBGRAPHS = ("higher_order.cond", "higher_order.while_loop")
_DRAWN = ("prims.inductor_random.default", "prims.inductor_randint.default")
_OTHER_ORDER = re.compile(r"\b(?:randn?4x|rand_eager_kernel)\(")
_Begin = dict[ValueKey, tuple[Launch, Read]]


class NotClosedError(Exception):
    """The reason why a region does not end in recorded values."""


def slice_to(
    graph: Graph, target: ValueKey, known: Set[ValueKey], symbols: Symbols, *, takes_weights: bool = False
) -> tuple[tuple[str, ...], tuple[ValueKey, ...]]:
    """The nodes between known values and a target, and the known values that they need.

    Args:
        takes_weights: weights, and inputs of the whole model, need not be known.

    Raises:
        NotClosedError: a node without a known value is an input, a weight, or a branch or loop.
    """
    nodes: dict[str, None] = {}
    used: dict[ValueKey, None] = {}
    pending = [(target, True)]
    while pending:
        value, is_target = pending.pop()
        name = value.after or value.node
        node = graph.by_name[name]
        if value in known and not (is_target and node.kind is NodeKind.CALL):
            used[value] = None
            continue
        if (base := graph.base_of(value)) is not None:
            others = (graph.value_for(item, value.node) for item in graph.by_name[value.node].inputs[1:])
            pending += [(base, False), *((other, False) for other in others)]
            continue
        is_given = node.value is not None or node.is_empty or (node.size and symbols.value(node.size) is not None)
        is_kept = node.kind is NodeKind.WEIGHT and not graph.mutators.get(name)
        is_taken = takes_weights and (is_kept or is_kept_input(graph, node))
        if node.kind is NodeKind.SUBGRAPH:
            continue
        if name in nodes or is_given or is_taken:
            nodes[name] = None
            continue
        if node.kind is not NodeKind.CALL:
            raise NotClosedError(f"it depends on {_described(node.kind)} {name}, whose values are not known")
        if node.target in SUBGRAPHS:
            raise NotClosedError(f"it depends on {node.target.removeprefix('higher_order.')} in {name}")
        nodes[name] = None
        pending += [(graph.value_for(item, name), False) for item in node.inputs]
    return tuple(nodes), tuple(used)


def _described(kind: NodeKind) -> str:
    return {NodeKind.INPUT: "the input", NodeKind.WEIGHT: "the weight"}.get(kind, "the graph")


class _Earlier:
    """The values that other launches wrote before, found when they are first asked for.

    Attributes:
        begin: the inputs and weights that any launch read.
    """

    def __init__(self, values: RecordedValues, launch: Launch, begin: _Begin) -> None:
        self._values = values
        self._launch = launch
        self.begin = begin

    @cached_property
    def writes(self) -> Mapping[ValueKey, Write]:
        """The last write of each value."""
        return {write.value: write for write in self._values.earlier(self._launch) if write.value is not None}


class RegionFinder:
    """Finds regions of a run at level 1.

    Attributes:
        values: what each launch reads and writes.
    """

    def __init__(self, run: RunDir, reference: Reference, frame: Frame | None = None) -> None:
        """Follows the values of a run.

        Args:
            frame: the execution of a graph to which all launches of interest belong; None for any.
        """
        self._run = run
        self.values = RecordedValues(run, reference, frame)
        self._strides = {name: buffer_strides(run.manifest, name) for name in (FOLDING, MODEL)}
        self._begins: dict[Frame, _Begin] = {}

    @cached_property
    def _launches(self) -> Mapping[Frame, list[Launch]]:
        """The launches of each execution of a graph."""
        launches: dict[Frame, list[Launch]] = defaultdict(list)
        for launch in self.values.launches:
            launches[frame_of(launch)].append(launch)
        return launches

    def region(self, launch: Launch) -> Region:
        """The region of a launch.

        Raises:
            NotClosedError: none of its outputs can be compared.
        """
        graph = self.values.graph(launch)
        if graph is None:
            raise NotClosedError("the reference lacks its graph")
        outputs = [w for w in self.values.writes[launch.key] if w.value is not None]
        if not outputs:
            raise NotClosedError("no node holds what it writes")
        launches, reads = self._with_producers(launch)
        whole_last = sorted(reads, key=lambda read: read.argument.name == read.argument.spec.base)
        known = {read.value: read for read in whole_last if read.value is not None}
        symbols = self.values.symbols(launch)
        earlier = _Earlier(self.values, launch, self._begin(launch))
        nodes: dict[str, None] = {}
        used: dict[ValueKey, None] = {}
        closed: list[Write] = []
        open_: dict[str, str] = {}
        for write in outputs:
            try:
                needed, stops = _closed(graph, write, known.keys(), earlier, symbols)
            except NotClosedError as error:
                open_[write.argument.name] = str(error)
                continue
            closed.append(write)
            nodes |= dict.fromkeys(needed)
            used |= dict.fromkeys(stops)
        if not closed:
            raise NotClosedError(next(iter(open_.values())))
        self._check_random_numbers(graph, nodes, launches)
        inputs: list[KnownValue] = []
        for value in used:
            try:
                recorded = self._tensor_of(value, launch, known, earlier)
                inputs.append(KnownValue(value, recorded, self._parts_of(value, launch, known, reads)))
            except NotClosedError:
                node = graph.by_name[value.node]
                if node.kind is not NodeKind.WEIGHT or graph.mutators.get(node.name):
                    raise
                nodes[node.name] = None  # a weight that was passed wrongly, taken from the exported program
        return Region(
            launch=launch.id,
            launches=launches,
            graph=graph.name,
            function=graph.function,
            nodes=graph.sorted(nodes),
            inputs=tuple(inputs),
            outputs=tuple(KnownValue(w.value, self._written(w)) for w in closed if w.value is not None),
            symbols=symbols.known(),
            notes=tuple(f"{name} is not compared: {reason}" for name, reason in open_.items()),
        )

    def _check_random_numbers(self, graph: Graph, nodes: Iterable[str], launches: Iterable[str]) -> None:
        """Raises NotClosedError if a kernel draws random numbers in another order than that of their elements."""
        if not any(graph.by_name[name].target in _DRAWN for name in nodes):
            return
        for kernel in (kernel for id_ in launches for kernel in self.values.kernels_of(self._run.launch(id_))):
            if _OTHER_ORDER.search(kernel.source):
                raise NotClosedError(f"random numbers: {kernel.name} draws several at once")

    def _tensor_of(
        self, value: ValueKey, launch: Launch, known: Mapping[ValueKey, Read], earlier: _Earlier
    ) -> Recorded:
        if value in known:
            return self._read(launch, known[value])
        if value in earlier.writes:
            return self._written(earlier.writes[value])
        return self._read(*earlier.begin[value])

    def _parts_of(
        self, value: ValueKey, launch: Launch, known: Mapping[ValueKey, Read], reads: Iterable[Read]
    ) -> tuple[Recorded, ...]:
        """The other views of a value that launches of the region read, if none of them read the whole of it."""
        first = known.get(value)
        if first is None or first.write is not None or first.argument.name == first.argument.spec.base:
            return ()
        others = [read for read in reads if read.value == value and read.argument.layout != first.argument.layout]
        by_layout = {read.argument.layout: read for read in others}
        return tuple(self._read(launch, read) for read in by_layout.values())

    def _begin(self, launch: Launch) -> _Begin:
        """The inputs and weights that launches of the same execution of a graph read."""
        frame = frame_of(launch)
        if frame not in self._begins:
            self._begins.clear()  # launches come in order
            begin: _Begin = {}
            graph = self.values.graph(launch)
            if graph is not None:
                for other in self._launches[frame]:
                    for read in self.values.reads.get(other.key, ()):
                        value = read.value
                        if value and not value.after and graph.by_name[value.node].kind is not NodeKind.CALL:
                            begin.setdefault(value, (other, read))
            self._begins[frame] = begin
        return self._begins[frame]

    def _with_producers(self, launch: Launch) -> tuple[tuple[str, ...], list[Read]]:
        """The launches of a region, and what they read from outside of it."""
        members: dict[LaunchKey, Launch] = {}
        outside: list[Read] = []
        pending = [launch]
        while pending:
            member = pending.pop()
            if member.key in members:
                continue
            members[member.key] = member
            for read in self.values.reads[member.key]:
                if read.value is None and read.write is not None:
                    pending.append(read.write.launch)
                else:
                    outside.append(read)
        return tuple(str(key) for key in sorted(members)), outside

    def _read(self, launch: Launch, read: Read) -> Recorded:
        """The recorded tensor of a value: as it was read, or, if only a part was, as it was written."""
        if read.write is not None and not _same_layout(read.argument, read.write.argument):
            return self._written(read.write)
        reader = next(m for m in self._readers(launch) if read in self.values.reads[m.key])
        return self._file(reader, read.argument, Phase.BEFORE)

    def _readers(self, launch: Launch) -> Iterable[Launch]:
        yield launch
        yield from self.values.launches

    def _written(self, write: Write) -> Recorded:
        return self._file(write.launch, write.argument, Phase.AFTER)

    def _file(self, launch: Launch, argument: Argument, phase: Phase) -> Recorded:
        saved = argument.files.get(phase) or (argument.files.get(Phase.AFTER) if phase is Phase.BEFORE else None)
        if saved is None or not saved.path:
            reason = f": {saved.reason}" if saved is not None and saved.reason else ""
            raise NotClosedError(f"{argument.name} of {launch.id} was not saved{reason}")
        of_function = self._strides.get(launch.site.function, {})
        strides = of_function.get(argument.name) or of_function.get(argument.spec.base, ())
        return Recorded(launch.id, argument.name, str(self._run.tensor_path(saved)), strides, storage_of(argument))


def _closed(
    graph: Graph, write: Write, known: Set[ValueKey], earlier: _Earlier, symbols: Symbols
) -> tuple[tuple[str, ...], tuple[ValueKey, ...]]:
    """The nodes between known values and what a launch wrote, and the known values that they need.

    Args:
        known: the values that the launches of the region read.
        earlier: values that other launches wrote before, or read; used where those do not suffice.
    """
    assert write.value is not None
    try:
        return slice_to(graph, write.value, known, symbols)
    except NotClosedError:
        everywhere = known | earlier.writes.keys() | earlier.begin.keys()
        return slice_to(graph, write.value, everywhere, symbols, takes_weights=True)


def storage_of(argument: Argument) -> int:
    """The size of the storage that an argument lies in, in elements; 0 if it is unknown."""
    layout = argument.layout
    return layout.storage_bytes // layout.item_bytes if layout is not None and layout.item_bytes else 0


def _same_layout(first: Argument, second: Argument) -> bool:
    a, b = first.layout, second.layout
    return a is not None and b is not None and (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)
