"""The lifetimes of the storages in the calls of a run: by the statements of its code, and the launches that use it."""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import groupby

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax import lexer
from aoti_debug.instrument.wrapper.cpp_syntax.functions import Body, entry_points
from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Allocation, Form, Manifest
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.run.memory_meter import MeasuredMemory
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.memory.storage_timeline import CallMemory, Memory, MemoryBlock, Use

_STATEMENTS = re.compile(
    r"\b(?:auto\s+)?(?P<moved>\w+)\s*=\s*std::move\((?P<old>\w+)\)\s*;"
    r"|\b(?:auto|RAIIAtenTensorHandle)\s+(?P<view>\w+)\s*(?:=\s*|\()\s*"
    r"(?:RAIIAtenTensorHandle\(|wrap_with_raii_handle_if_needed\()?\s*reinterpret_tensor_wrapper\((?P<viewed>\w+)\s*,"
    r"|\baoti_torch_assign_tensors_out\((?P<assigned>\w+)\s*,\s*&(?P<copy>\w+)_handle\)"
    r"|\baoti_torch__alloc_from_pool\((?P<pool>\w+)\s*,"
    r"|\b(?P<dropped>\w+)\.reset\(\)\s*;"
    r"|\b(?P<loop>while)\s*\(\s*1\s*\)\s*\{"
)


class HandleUse(str, Enum):
    """The effect of a statement on handles."""

    MOVE = "move"  # the tensor has another name from here on: its memory is used again
    VIEW = "view"  # a second handle to the same memory
    DROP = "drop"
    LOOP = "loop"  # the body of a loop begins: an iteration begins again here


@dataclass(frozen=True)
class HandleEvent:
    """A statement that changes which handles there are.

    Attributes:
        function: "run_impl" or "_const_run_impl".
        line: in the wrapper, from 1.
        name: the handle that is made or dropped.
        source: the handle that it is moved from or views; "" of a drop and of a loop.
    """

    function: str
    line: int
    action: HandleUse
    name: str
    source: str = ""


def handle_events(text: str, allocations: Iterable[Allocation]) -> tuple[HandleEvent, ...]:
    """The handle events of the model's functions; without allocations, except those from a pool, which are views of it.

    Args:
        allocations: of the manifest; they say which buffer an allocation is for.

    Raises:
        ArtifactError: the text is no wrapper.
    """
    masked = lexer.mask(text)
    names = {allocation.line: allocation.name for allocation in allocations}
    return tuple(event for body in entry_points(masked) for event in _in_body(masked, body, names))


def _in_body(masked: str, body: Body, names: Mapping[int, str]) -> Iterator[HandleEvent]:
    line, counted = masked.count("\n", 0, body.opening) + 1, body.opening
    for match in _STATEMENTS.finditer(masked, body.opening, body.closing):
        line += masked.count("\n", counted, match.start())
        counted = match.start()
        action, name, source = HandleUse.VIEW, match["view"], match["viewed"]
        if match["moved"]:
            action, name, source = HandleUse.MOVE, match["moved"], match["old"]
        elif match["copy"]:
            name, source = match["copy"], match["assigned"]
        elif match["pool"]:
            name, source = names.get(line, ""), match["pool"]
        elif match["dropped"]:
            action, name, source = HandleUse.DROP, match["dropped"], ""
        elif match["loop"]:
            action, name, source = HandleUse.LOOP, "", ""
        yield HandleEvent(body.name, line, action, name, source)


def workspaces(call: CallMemory, measured: MeasuredMemory, start_unix_ns: int) -> Mapping[int, int]:
    """The bytes beyond what launches were passed, by position of the launch; launches without any are absent.

    Args:
        call: the call that was counted.
        start_unix_ns: the time of the journal's start.
    """
    times = [time for time, _ in measured.steps]
    counts = [count for _, count in measured.steps]
    found: dict[int, int] = {}
    for position, launch in enumerate(call.launches):
        if launch.end_ns is None:
            continue
        begin = bisect_left(times, start_unix_ns + launch.begin_ns)
        end = bisect_left(times, start_unix_ns + launch.end_ns)
        beyond = max(counts[begin:end], default=0) - call.allocated[position]
        if beyond > 0:
            found[position] = beyond
    return found


def call_memory(manifest: Manifest, launches: Sequence[Launch], events: Sequence[HandleEvent]) -> CallMemory:
    """The memory of one call.

    Args:
        launches: all launches of the call, in order; at least one.
        events: of the wrapper; without any, a storage lives from the first launch that it is passed to until the last.
    """
    key = launches[0].key
    storages = _Call(manifest, events).follow(launches)
    return CallMemory(key.kind, key.call, tuple(launches), storages)


@dataclasses.dataclass
class _Block:
    """A storage while its call is followed."""

    names: list[str]
    handles: set[str]
    first: int
    use: Use = Use.BUFFER
    bytes: int = 0
    address: int = 0
    device: str = ""
    last_used: int = 0
    last: int | None = None
    made_by: str = ""

    def hold(self, tensor: Tensor) -> None:
        """Notes the size and address that a launch was passed."""
        self.bytes = max(self.bytes, tensor.layout.storage_bytes)
        self.address, self.device = tensor.storage_ptr, tensor.layout.device


class _Call:
    def __init__(self, manifest: Manifest, events: Sequence[HandleEvent]) -> None:
        self._manifest = manifest
        self._weights = {constant.name for constant in manifest.constants}
        self._inputs = set(manifest.inputs)
        self._outputs = {*manifest.outputs} - {""}
        self._allocated = {(a.name, a.line) for a in manifest.allocations if a.line}
        self._subgraphs = {site.subgraph for site in manifest.sites} - {""}
        self._events = events
        self._blocks: list[_Block] = []
        self._by_handle: dict[str, _Block] = {}

    def follow(self, launches: Sequence[Launch]) -> tuple[MemoryBlock, ...]:
        """The storages of the call."""
        function = launches[0].site.function
        lines = sorted({site.line for site in self._manifest.sites if site.function == function and site.line})
        gaps = self._events_by_gap(function, lines)
        applied = -1
        subgraph = ""
        for position, launch in enumerate(launches):
            if launch.site.subgraph != subgraph:
                subgraph = launch.site.subgraph
                self._leave_others(subgraph, position - 1)
            gap = bisect_left(lines, launch.site.line)  # the gap before this site
            if gap != applied:
                before = gaps.get(gap, ())
                self._apply(_of_iteration(before) if gap < applied else before, position)
            self._launch(launch, position)
            applied = gap + 1
            self._apply(gaps.get(applied, ()), position + 1)
        end = len(launches) - 1
        return tuple(self._storage(block, end) for block in self._blocks if block.bytes)

    def _events_by_gap(self, function: str, lines: Sequence[int]) -> dict[int, list[HandleEvent]]:
        """What happens between two sites of the text, by the number of sites before it."""
        found: dict[int, list[HandleEvent]] = {}
        events = [e for e in self._events if e.function == function]
        in_pools = {(e.name, e.line) for e in events}
        made = [HandleEvent(function, line, HandleUse.VIEW, name) for name, line in self._allocated - in_pools]
        for event in sorted((*events, *made), key=lambda e: e.line):
            gap = bisect_left(lines, event.line)
            if event.line not in lines or event.action is HandleUse.DROP:  # an operator's output is made by its launch
                found.setdefault(gap, []).append(event)
        return found

    def _apply(self, events: Sequence[HandleEvent], position: int) -> None:
        for number, event in enumerate(events):
            following = events[number + 1] if number + 1 < len(events) else None
            if event.action is HandleUse.LOOP:
                continue
            if event.action is HandleUse.DROP:
                if not self._is_of_other_branch(event, following):
                    self._drop(event.name, position - 1)
            elif not event.source:
                self._make(event.name, position)
            elif (block := self._by_handle.get(event.source)) is not None:
                if event.action is HandleUse.MOVE:
                    self._release(event.source, block)
                if self._by_handle.get(event.name) is not block:
                    self._drop(event.name, position - 1)
                block.names.append(event.name)
                block.handles.add(event.name)
                self._by_handle[event.name] = block

    def _is_of_other_branch(self, event: HandleEvent, following: HandleEvent | None) -> bool:
        """True for `buf4.reset(); buf4 = std::move(false_graph_0_buf2)` where that branch was not taken."""
        replaces = following is not None and following.action is HandleUse.MOVE and following.name == event.name
        return replaces and following is not None and following.source not in self._by_handle

    def _make(self, name: str, position: int) -> _Block:
        if (old := self._by_handle.pop(name, None)) is not None:  # of the iteration before
            self._release(name, old)
            if not old.handles and old.last is None:
                old.last = position - 1
        block = _Block([name], {name}, position, last_used=position)
        self._blocks.append(block)
        self._by_handle[name] = block
        return block

    def _drop(self, name: str, position: int) -> None:
        block = self._by_handle.pop(name, None)
        if block is None:
            return
        self._release(name, block)
        if not block.handles:
            block.last = max(position, block.first)

    def _release(self, name: str, block: _Block) -> None:
        block.handles.discard(name)
        if self._by_handle.get(name) is block:
            del self._by_handle[name]

    def _leave_others(self, subgraph: str, position: int) -> None:
        """Drops the handles of all bodies of branches and loops but this one and those around it."""
        left = tuple(f"{other}_" for other in self._subgraphs if not subgraph.startswith(other))
        for name in [name for name in self._by_handle if name.startswith(left)]:
            self._drop(name, position)

    def _launch(self, launch: Launch, position: int) -> None:
        for argument in launch.args:
            tensor = argument.tensor
            if tensor is None or tensor.layout.storage_bytes == 0:
                continue
            block = self._block_of(launch, argument, tensor, position)
            block.hold(tensor)
            block.last_used = position

    def _block_of(self, launch: Launch, argument: Argument, tensor: Tensor, position: int) -> _Block:
        for name in (argument.name, argument.spec.base):
            if name in self._by_handle and self._by_handle[name].address in (0, tensor.storage_ptr):
                return self._by_handle[name]
        for block in reversed(self._blocks):
            if block.last is None and block.address == tensor.storage_ptr and block.device == tensor.layout.device:
                return block
        name = argument.spec.base or argument.name
        block = self._make(name, position)
        if name in self._weights:
            block.use = Use.WEIGHT
        elif name in self._inputs:
            block.use = Use.INPUT
        elif argument.spec.form is Form.OUTPUT_SLOT or argument.before is not argument.after:
            block.made_by = launch.site.op or launch.kernel
        return block

    def _storage(self, block: _Block, end: int) -> MemoryBlock:
        use = block.use
        if use is Use.BUFFER and self._outputs & set(block.names) and block.last is None:
            use = Use.OUTPUT
        if use in (Use.WEIGHT, Use.INPUT):
            first, last = 0, end
        else:
            dropped = block.last_used if not self._events else end
            first, last = block.first, dropped if block.last is None else block.last
        last = end if use is Use.OUTPUT else last
        names = tuple(dict.fromkeys(block.names))
        return MemoryBlock(
            names, use, block.bytes, block.device, min(first, end), max(min(last, end), min(first, end)), block.made_by
        )


def _of_iteration(events: Sequence[HandleEvent]) -> Sequence[HandleEvent]:
    """The events before the first launch of an iteration that are in the loop."""
    loops = [number for number, event in enumerate(events) if event.action is HandleUse.LOOP]
    return events[loops[-1] :] if loops else events


def run_memory(run: RunDir, measured: MeasuredMemory = MeasuredMemory()) -> Memory:  # noqa: B008 - it is frozen
    """The memory of each call of a run.

    Args:
        measured: the counters of its process.
    """
    events, missing = _events(run)
    calls = tuple(
        call_memory(run.manifest, tuple(launches), events)
        for _, launches in groupby(
            sorted(run.launches, key=lambda launch: launch.key), key=lambda launch: launch.key[:2]
        )
    )
    notes = (
        [f"when buffers are dropped is not known: {missing}; they are taken to live until their last use"]
        if missing
        else []
    )
    if any(launch.loops or launch.site.subgraph for launch in run.launches):
        notes.append("buffers of branches and loops are taken to live until their body ends")
    if run.journal is not None:
        calls = _with_workspace(calls, measured, run.journal.header.start_unix_ns)
    return Memory(calls, tuple(notes))


def _with_workspace(
    calls: tuple[CallMemory, ...], measured: MeasuredMemory, start_unix_ns: int
) -> tuple[CallMemory, ...]:
    """The calls with the workspace that was counted in the last one, if they launch the same."""
    if not calls or not measured.steps:
        return calls
    counted = calls[-1]
    found = workspaces(counted, measured, start_unix_ns)
    return tuple(replace(call, workspace=found) if _sites(call) == _sites(counted) else call for call in calls)


def _sites(call: CallMemory) -> list[int]:
    return [launch.site.id for launch in call.launches]


def _events(run: RunDir) -> tuple[tuple[HandleEvent, ...], str]:
    """The handle events of the run's wrapper, or the reason why there are none."""
    if run.package is None:
        return (), "the package that was run was not found"
    try:
        package = archive.inspect(run.required_package)
        sources = package.wrapper_sources(run.manifest.model)
        texts = [package.read(source).decode() for source in sources]
        return tuple(event for text in texts for event in handle_events(text, run.manifest.allocations)), ""
    except (AotiDebugError, UnicodeDecodeError) as error:
        return (), str(error)
