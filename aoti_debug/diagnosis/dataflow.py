"""Which launch made the bytes that another one reads, by the memory that the journal recorded.

Names alone would lead astray: Inductor gives the memory of a dead buffer to a new one, and views share it. So a tensor
is the span of bytes that its elements lie in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from aoti_debug.abi import Phase
from aoti_debug.manifest import Manifest, Role
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument, Launch, LaunchStatus


@dataclass(frozen=True)
class ByteRange:
    """The bytes [begin, end) of one device's memory."""

    device: str
    begin: int
    end: int

    def overlaps(self, other: ByteRange) -> bool:
        return self.device == other.device and self.begin < other.end and other.begin < self.end

    def covers(self, other: ByteRange) -> bool:
        return self.device == other.device and self.begin <= other.begin and other.end <= self.end


@dataclass(frozen=True)
class Writer:
    """Where the content of an argument comes from: a launch, or what came into the model.

    Attributes:
        input: the model input or weight, as its user knows it; "" where a launch wrote it, or nobody knows.
    """

    launch: Launch | None
    argument: Argument | None
    input: str


@dataclass(frozen=True)
class _Access:
    order: int
    launch: Launch
    argument: Argument
    span: ByteRange


class Dataflow:
    """The launches of one run, in the order in which the host began them."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._order = {launch.key: order for order, launch in enumerate(run.launches)}

    def writer(self, launch: Launch, argument: Argument) -> Writer:
        """Who last wrote the bytes of an argument before the launch."""
        span = span_of(argument)
        outside = outside_name(self.run.manifest, argument)
        if span is not None:
            before = self._order[launch.key]
            for access in reversed(self._writes):
                if access.order < before and access.span.overlaps(span) and self._can_reach(access, launch, argument):
                    return Writer(access.launch, access.argument, "")
        return Writer(None, None, outside)

    def readers(self, launch: Launch, argument: Argument) -> tuple[tuple[Launch, Argument], ...]:
        """Later launches of the call that read what the launch left in the argument, before all of it is overwritten
        or its memory belongs to another buffer."""
        span = span_of(argument)
        if span is None:
            return ()
        found: list[tuple[Launch, Argument]] = []
        for later in self.run.launches[self._order[launch.key] + 1 :]:
            if (later.key.kind, later.key.call) != (launch.key.kind, launch.key.call):
                continue
            touched = [(a, s) for a in later.args if (s := span_of(a)) is not None and s.overlaps(span)]
            found += [(later, a) for a, _ in touched if _reads(a)]
            if any(_overwrites(later, a) and s.covers(span) for a, s in touched):
                break
        return tuple(found)

    def is_output(self, argument: Argument) -> bool:
        """Whether what is in the argument leaves the call: as an output, or in an input that the model changes."""
        names = {argument.name, argument.spec.base}
        manifest = self.run.manifest
        leaving = {*manifest.outputs, *manifest.handed_out} - {""}
        return bool(names & leaving) or (argument.written and bool(names & set(manifest.inputs)))

    @cached_property
    def _writes(self) -> tuple[_Access, ...]:
        return tuple(self._all_writes())

    def _all_writes(self) -> Iterator[_Access]:
        for order, launch in enumerate(self.run.launches):
            if launch.status is LaunchStatus.NOT_STARTED:
                continue
            for argument in launch.args:
                span = span_of(argument)
                if span is not None and _overwrites(launch, argument):
                    yield _Access(order, launch, argument, span)

    def _can_reach(self, access: _Access, launch: Launch, argument: Argument) -> bool:
        """Memory outlives a call only for what the model keeps: weights, buffers, inputs that it changes."""
        same_call = (access.launch.key.kind, access.launch.key.call) == (launch.key.kind, launch.key.call)
        if same_call:
            return True
        return bool(outside_name(self.run.manifest, argument)) and _base(access.argument) == _base(argument)


def span_of(argument: Argument) -> ByteRange | None:
    """The bytes that an argument's elements lie in; None where it is no tensor, empty, or of unknown layout."""
    tensor = argument.tensor
    if tensor is None or tensor.data_ptr == 0:
        return None
    extent = tensor.layout.extent_bytes
    return ByteRange(tensor.layout.device, tensor.data_ptr, tensor.data_ptr + extent) if extent > 0 else None


def outside_name(manifest: Manifest, argument: Argument) -> str:
    """How the user knows the model input or weight that an argument is (a view of); "" where it is none."""
    names = (argument.spec.base, argument.name)
    for position, variable in enumerate(manifest.inputs):
        if variable in names:
            known = manifest.input_names[position] if position < len(manifest.input_names) else ""
            return known or variable
    return next((c.fqn or c.name for c in manifest.constants if c.name in names and not c.folded), "")


def _base(argument: Argument) -> str:
    return argument.spec.base or argument.name


def _reads(argument: Argument) -> bool:
    return argument.role in (Role.IN, Role.INOUT, Role.UNKNOWN)


def _overwrites(launch: Launch, argument: Argument) -> bool:
    """Whether the launch wrote the argument, as far as is known: equal bytes before and after say no."""
    if not argument.written:
        return False
    if argument.role is not Role.UNKNOWN or launch.status is LaunchStatus.OPEN:
        return True
    before, after = argument.files.get(Phase.BEFORE), argument.files.get(Phase.AFTER)
    if before is not None and after is not None:
        return before.hash != after.hash
    first, second = argument.stats.get(Phase.BEFORE), argument.stats.get(Phase.AFTER)
    if first is not None and second is not None:
        return first.hash != second.hash
    return True
