"""The values of the graph that the tensors of a run hold: which node's result each argument of a launch is.

A buffer's memory gets other names when it is used again, so an argument that is read is identified by the launch that
last wrote its bytes; where no launch of the same graph did, by its name.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.regions.writes import LastWrites, stores_to
from aoti_debug.package.argument_values import Number
from aoti_debug.package.inputs.symbolic_sizes import Symbols, is_symbol
from aoti_debug.package.manifest import Form, Kernel, Role
from aoti_debug.package.program_graphs import HIGHER_ORDER, Graph, Node, NodeKind, Reference, ValueKey, nodes_in
from aoti_debug.runs.diagnosis.dataflow import ByteRange, span_of
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.launch import Argument, Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir

_VIEW = re.compile(r"_view\d*\Z")
_READ = (Role.IN, Role.INOUT, Role.UNKNOWN)
_TENSORS = (Form.TENSOR, Form.POINTER)
_GIVING_OUTPUTS = tuple(f"{HIGHER_ORDER}{name}" for name in ("cond", "invoke_subgraph"))  # give what a body does

Frame = tuple[CallKind, int, str, tuple[int, ...]]
"""One execution of a graph: the kind and number of the call, the graph, the iteration of each enclosing loop."""


@dataclass(frozen=True)
class Write:
    """A tensor that a launch wrote.

    Attributes:
        value: what it holds; None if no node has this value.
    """

    launch: Launch
    argument: Argument
    span: ByteRange | None
    value: ValueKey | None


@dataclass(frozen=True)
class Read:
    """A tensor that a launch read.

    Attributes:
        value: what it held; None if it is not known.
        write: the write that it comes from; None if no launch of the same graph wrote it.
    """

    argument: Argument
    value: ValueKey | None
    write: Write | None


class RecordedValues:
    """The reads and writes of each launch of a run, as values of the graphs.

    Attributes:
        launches: those whose reads and writes are known: they have returned, and are of the frame that was asked for.
    """

    def __init__(self, run: RunDir, reference: Reference, frame: Frame | None = None) -> None:
        """Follows the values of a run.

        Args:
            frame: the execution of a graph to which all launches of interest belong; None for any.
        """
        self.run = run
        self._reference = reference
        self._weights = {constant.name: constant.fqn or constant.name for constant in run.manifest.constants}
        self._kernels = {kernel.name: kernel for kernel in run.manifest.kernels}
        self.reads: dict[LaunchKey, tuple[Read, ...]] = {}
        self.writes: dict[LaunchKey, tuple[Write, ...]] = {}
        self._symbols: dict[tuple[CallKind, int], Symbols] = defaultdict(Symbols)
        self._of_frame: dict[Frame, Symbols] = {}
        self._earlier: dict[Frame, list[Write]] = defaultdict(list)
        self._memory: dict[Frame, LastWrites[Write]] = defaultdict(LastWrites)
        self._of_call: dict[tuple[CallKind, int], LastWrites[Write]] = defaultdict(LastWrites)
        self._has_bodies = any(n.kind is NodeKind.SUBGRAPH for graph in reference.graphs for n in graph.nodes)
        self._without_address: dict[tuple[Frame, str], Write] = {}
        self._unwritten: dict[tuple[int, int], bool] = {}  # by site and argument
        self._names: dict[tuple[int, str], ValueKey | None] = {}  # of values, by site
        self._graphs: dict[int, Graph | None] = {}  # by site
        self.launches = tuple(launch for launch in run.launches if launch.status is LaunchStatus.RETURNED)
        if frame is not None and not self._has_symbols():
            self.launches = tuple(launch for launch in self.launches if frame_of(launch) == frame)
        written = {launch.key: tuple(self._written(launch)) for launch in self.launches}
        versions = self._versions(self.launches, written)
        for launch in self.launches:
            self._follow(launch, written[launch.key], versions)

    def _has_symbols(self) -> bool:
        """True if a launch may show the value of a symbol, which holds for the other launches of its call, too."""
        specs = (spec for site in self.run.manifest.sites for spec in site.args if spec.form not in _TENSORS)
        nodes = (node for graph in self._reference.graphs for node in graph.nodes)
        shapes = (type_.shape for node in nodes for type_ in node.types if type_ is not None)
        return any(is_symbol(spec.text) for spec in specs) or any(map(is_symbol, itertools.chain(*shapes)))

    def _written(self, launch: Launch) -> Iterator[Argument]:
        """The tensors that a launch wrote, each once.

        Of an argument of unknown role, only if its bytes changed. One that a kernel takes as read and written, and
        never stores to by this name, does not hold its value: Inductor has removed the store, and has at most kept a
        partial result there.
        """
        for argument in {argument.name: argument for argument in launch.args}.values():
            if argument.written and argument.layout is not None and not self._is_unwritten(launch, argument):
                yield argument

    def _is_unwritten(self, launch: Launch, argument: Argument) -> bool:
        if argument.role is Role.UNKNOWN:
            before, after = argument.files.get(Phase.BEFORE), argument.files.get(Phase.AFTER)
            return before is not None and after is not None and before.hash == after.hash
        if argument.role is not Role.INOUT:
            return False
        key = (launch.site.id, argument.slot)
        if key not in self._unwritten:
            kernels = self.kernels_of(launch)
            stored = any(stores_to(kernel, argument.spec.param) for kernel in kernels)
            self._unwritten[key] = len(kernels) == len(_kernel_names(launch)) and not stored
        return self._unwritten[key]

    def kernels_of(self, launch: Launch) -> tuple[Kernel, ...]:
        """The generated kernels of a launch whose source is known."""
        kernels = (self._kernels.get(name) for name in _kernel_names(launch))
        return tuple(kernel for kernel in kernels if kernel is not None and kernel.source)

    def graph(self, launch: Launch) -> Graph | None:
        """The graph that a launch belongs to; None if it is not in the reference."""
        site = launch.site
        if site.id not in self._graphs:
            self._graphs[site.id] = self._reference.graph(site.subgraph, site.function)
        return self._graphs[site.id]

    def earlier(self, launch: Launch) -> Iterator[Write]:
        """Yields the writes before a launch, of the same execution of the graph."""
        for write in self._earlier[frame_of(launch)]:
            if write.launch.sequence >= launch.sequence:
                return
            yield write

    def inputs(self, launch: Launch) -> tuple[Read, ...]:
        """The tensors that a launch read, or, if it is the last one and did not return, was about to read."""
        arguments = (a for a in launch.args if a.role in _READ and a.tensor is not None)
        return self.reads.get(launch.key) or tuple(self._read(launch, argument) for argument in arguments)

    def held_by(self, launch: Launch, argument: Argument) -> ValueKey | None:
        """The value that a buffer holds in the end, by its name; None if no node has it."""
        return self._named(launch, argument.name) or self._named(launch, argument.spec.base)

    def _follow(
        self,
        launch: Launch,
        written: Sequence[Argument],
        versions: Mapping[tuple[LaunchKey, str], ValueKey | None],
    ) -> None:
        for argument in launch.args:
            if isinstance(argument.before, Number) and is_symbol(argument.spec.text):
                self._bind(launch, argument.spec.text, int(argument.before.value))
        inputs = [a for a in launch.args if a.role in _READ and a.tensor is not None]
        self.reads[launch.key] = tuple(self._read(launch, argument) for argument in inputs)
        self.writes[launch.key] = tuple(
            Write(launch, a, span_of(a), versions.get((launch.key, a.name))) for a in written
        )
        frame = frame_of(launch)
        for write in self.writes[launch.key]:
            self._earlier[frame].append(write)
            if write.span is None:
                self._without_address[frame, write.argument.name] = write
            else:
                self._memory[frame].add(write.span, write)
                if self._has_bodies:
                    self._of_call[frame[:2]].add(write.span, write)
        self._bind_sizes(launch)

    def _bind_sizes(self, launch: Launch) -> None:
        """Learns the values of symbolic sizes from the shapes of recorded tensors."""
        graph = self.graph(launch)
        reads = [(read.argument.layout, read.value) for read in self.reads[launch.key]]
        writes = [(write.argument.layout, write.value) for write in self.writes[launch.key]]
        for layout, value in (*reads, *writes):
            if value is None or layout is None or graph is None:
                continue
            types = graph.by_name[value.node].types
            if len(types) == 1 and types[0] is not None and len(types[0].shape) == len(layout.shape):
                for expression, size in zip(types[0].shape, layout.shape, strict=True):
                    self._bind(launch, expression, size)

    def symbols(self, launch: Launch) -> Symbols:
        """The known symbols where a launch runs: those of its call, and of this execution of a branch or loop."""
        call = self._symbols[launch.key.kind, launch.key.call]
        return self._of_frame.setdefault(frame_of(launch), Symbols(call)) if launch.site.subgraph else call

    def _bind(self, launch: Launch, symbol: str, value: int) -> None:
        """Learns the value of a symbol: that of a size of an input ("s0") holds in all of its call, others need not."""
        is_of_call = symbol.startswith("s")
        symbols = self._symbols[launch.key.kind, launch.key.call] if is_of_call else self.symbols(launch)
        symbols.bind(symbol, value)

    def _read(self, launch: Launch, argument: Argument) -> Read:
        frame, span = frame_of(launch), span_of(argument)
        last = None if span is None else self._memory[frame].covering(span)
        if last is not None:
            return Read(argument, last.value, last)
        parts = () if span is None else self._memory[frame].to_any_of(span)
        name, graph = _VIEW.sub("", argument.name), self.graph(launch)
        if graph is not None and name in graph.held and (argument.role is Role.INOUT or _makes(launch, argument)):
            return Read(argument, self._handed_out(launch, span), None)  # its own value is there after the launch
        value = self._named(launch, name) or self._named(launch, argument.spec.base)
        if parts and value is not None:  # a part of it was overwritten, or several, one after the other
            newest = max(parts, key=lambda write: write.launch.sequence).value
            value = newest if newest is not None and newest.node == value.node else value
        return Read(argument, value, self._without_address.get((frame, argument.spec.base)))

    def _handed_out(self, launch: Launch, span: ByteRange | None) -> ValueKey | None:
        """The value that a branch or region has left in these bytes, as the graph of a launch has it; None if none."""
        write = None if span is None else self._of_call[frame_of(launch)[:2]].covering(span)
        graph, body = self.graph(launch), None if write is None else self.graph(write.launch)
        if write is None or write.value is None or write.value.after or graph is None or body is None:
            return None
        outputs = next((node.args[0] for node in body.nodes if node.kind is NodeKind.OUTPUT), ())
        places = [i for i, item in enumerate(outputs) if [*nodes_in(item)] == [write.value.node]]
        found = [
            node.name
            for node in graph.nodes
            if node.is_member and node.args[1] in places and _calls(graph, graph.by_name[node.inputs[0]], body)
        ]
        return ValueKey(found[0]) if len(found) == 1 else None

    def _named(self, launch: Launch, name: str) -> ValueKey | None:
        """The value of a buffer, an input or a weight by its name in the generated code."""
        key = (launch.site.id, name)
        if key not in self._names:
            self._names[key] = self._find_named(launch, name)
        return self._names[key]

    def _find_named(self, launch: Launch, name: str) -> ValueKey | None:
        graph = self.graph(launch)
        if graph is None:
            return None
        if name in graph.held:
            return ValueKey(graph.held[name])
        own = name.removeprefix(f"{graph.name}_") if graph.name else name
        node = graph.by_name.get(own)
        if node is not None and node.kind is NodeKind.INPUT and (not graph.name or own != name):
            return ValueKey(own)
        weight = graph.weights.get(self._weights.get(name, ""))
        return None if weight is None else ValueKey(weight)

    def _versions(
        self, launches: Sequence[Launch], written: Mapping[LaunchKey, Sequence[Argument]]
    ) -> dict[tuple[LaunchKey, str], ValueKey | None]:
        """The value that each write of a tensor leaves in it, by launch and argument.

        A functional graph has one value for a buffer that is written several times: it is there after the last write.
        """
        writes: dict[tuple[Frame, str], list[tuple[Launch, str]]] = defaultdict(list)
        for launch in launches:
            for argument in written[launch.key]:
                writes[frame_of(launch), self._variable(launch, argument)].append((launch, argument.name))
        values: dict[tuple[LaunchKey, str], ValueKey | None] = {}
        for (_, name), places in writes.items():
            keys = self._keys(places[0][0], name, len(places))
            values.update(zip(((place.key, argument) for place, argument in places), keys, strict=True))
        return values

    def _variable(self, launch: Launch, argument: Argument) -> str:
        """The buffer, input or weight that an argument is; a part of a buffer may be a buffer of its own."""
        graph = self.graph(launch)
        is_buffer = graph is not None and argument.name in graph.held
        base = argument.spec.base or argument.name
        name = _VIEW.sub("", argument.name)  # an operand of a branch or loop has a name of its own there
        return argument.name if is_buffer else name if self._named(launch, base) is None else base

    def _keys(self, launch: Launch, name: str, count: int) -> tuple[ValueKey | None, ...]:
        """The values that `count` consecutive writes of a tensor leave in it."""
        value, graph = self._named(launch, name), self.graph(launch)
        if value is None or graph is None:
            return (None,) * count
        mutators = graph.mutators.get(value.node, ())
        is_allocated = name in graph.held
        if not mutators:
            return (*(None,) * (count - 1), value if is_allocated else None)
        versions = (*((value,) if is_allocated else ()), *(ValueKey(value.node, mutator) for mutator in mutators))
        return versions if len(versions) == count else (*(None,) * (count - 1), versions[-1])


def _calls(graph: Graph, call: Node, body: Graph) -> bool:
    """True if a node returns what this body returns: of a branch or a region; a loop does not return its condition."""
    bodies = (graph.by_name[name] for name in call.inputs)
    return call.target in _GIVING_OUTPUTS and any(
        node.kind is NodeKind.SUBGRAPH and node.target == body.name for node in bodies
    )


def _makes(launch: Launch, argument: Argument) -> bool:
    """True if a launch also writes to the memory of an argument: a kernel that joins tensors, and reads the result."""
    span = span_of(argument)
    written = (span_of(other) for other in launch.args if other.written)
    return span is not None and any(other is not None and span.overlaps(other) for other in written)


def _kernel_names(launch: Launch) -> tuple[str, ...]:
    return launch.site.launches or (launch.site.kernel,)


def frame_of(launch: Launch) -> Frame:
    """The execution of a graph that a launch belongs to."""
    return launch.key.kind, launch.key.call, launch.site.subgraph, launch.loops
