"""The dataflow between launches: producers and consumers of each tensor, by recorded memory addresses.

Names alone would be wrong: Inductor reuses the memory of a dead buffer for a new one, and views share memory. So a
tensor is identified by the range of bytes that contains its elements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from aoti_debug.base import wording
from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Arg, Manifest, Role
from aoti_debug.runs.rundir.launch import Argument, Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir

_KEPT = 10_000  # launches whose writes are kept: all of most runs


@dataclass(frozen=True)
class ByteRange:
    """The bytes [begin, end) of one device's memory."""

    device: str
    begin: int
    end: int

    def overlaps(self, other: ByteRange) -> bool:
        """True if the ranges have a byte in common."""
        return self.device == other.device and self.begin < other.end and other.begin < self.end

    def covers(self, other: ByteRange) -> bool:
        """True if this range contains all of the other one."""
        return self.device == other.device and self.begin <= other.begin and other.end <= self.end


@dataclass(frozen=True)
class Writer:
    """The origin of the content of an argument: a launch, or a model input or weight.

    Attributes:
        input: the user's name of the model input or weight; "" if a launch wrote it, or the origin is unknown.
    """

    launch: Launch | None
    argument: Argument | None
    input: str


class _Access(NamedTuple):
    """A write of a launch; a named tuple, as a run has many of them."""

    launch: Launch
    slot: int
    span: ByteRange

    @property
    def argument(self) -> Argument:
        return self.launch.args[self.slot]


class Dataflow:
    """The launches of one run, in the order in which the host began them."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._found_writes: dict[int, Sequence[_Access]] = {}  # by position of the launch, of some
        self._written_slots: dict[int, tuple[int, ...]] = {}  # by site, the last first

    def writer(self, launch: Launch, argument: Argument) -> Writer:
        """The last writer of the bytes of an argument before the launch."""
        span = span_of(argument)
        input_ = input_or_weight_name(self.run.manifest, argument)
        position = self.run.launches.position(launch.key)
        if span is not None and position is not None:
            sites = self._writing_sites.get(_base(argument), ()) if input_ else ()
            for order in self.run.launches.earlier(position, sites):
                for access in self._writes(order):
                    if access.span.overlaps(span) and self._can_reach(access, launch, argument):
                        return Writer(access.launch, access.argument, "")
        return Writer(None, None, input_)

    def content_name(self, launch: Launch, argument: Argument) -> str:
        """The user's name of what an argument holds before a launch, or the name of its buffer.

        Inductor lets a launch write its result over a buffer that is not needed any more, under a new name: the values
        that it reads there are those of the old one.
        """
        name = model_name(self.run.manifest, argument)
        if argument.role is not Role.INOUT:
            return name
        writer, span = self.writer(launch, argument), span_of(argument)
        written = None if writer.argument is None else span_of(writer.argument)
        if writer.argument is None or span is None or written is None or not written.covers(span):
            return name
        return model_name(self.run.manifest, writer.argument)

    def readers(self, launch: Launch, argument: Argument) -> tuple[tuple[Launch, Argument], ...]:
        """The later launches of the call that read the argument as the launch wrote it.

        The search ends at the launch that overwrites all of its bytes, for this buffer or another one.
        """
        span = span_of(argument)
        if span is None:
            return ()
        readers: list[tuple[Launch, Argument]] = []
        for later in self.run.launches.later_in_call(launch):
            overlapping = [(a, s) for a in later.args if (s := span_of(a)) is not None and s.overlaps(span)]
            readers += [(later, a) for a, _ in overlapping if _reads(a)]
            if any(_overwrites(later, a) and s.covers(span) for a, s in overlapping):
                break
        return tuple(readers)

    def is_output(self, argument: Argument) -> bool:
        """True if the argument is an output of the model, or an input that the model mutates."""
        return self._is_output(argument.spec)

    def final_outputs(self) -> Iterator[tuple[Launch, Argument]]:
        """The last write of each output of each call of the model: the launch and the argument."""
        slots = {  # of outputs that a site writes
            site.id: [slot for slot, spec in enumerate(site.args) if spec.written and self._is_output(spec)]
            for site in self.run.manifest.sites
        }
        writing = {id_ for id_, found in slots.items() if found}
        for launches in self.run.launches.by_call(writing):
            final: dict[str, tuple[Launch, int]] = {}
            for launch in launches:
                if launch.key.kind is CallKind.MODEL:
                    final |= {launch.site.args[slot].name: (launch, slot) for slot in slots[launch.site.id]}
            yield from ((launch, launch.args[slot]) for launch, slot in final.values())

    @cached_property
    def _writing_sites(self) -> Mapping[str, Collection[int]]:
        """The sites that write to a buffer or to a view of it, by its name."""
        found: dict[str, set[int]] = {}
        for site in self.run.manifest.sites:
            for spec in site.args:
                if spec.written:
                    found.setdefault(spec.base or spec.name, set()).add(site.id)
        return found

    @cached_property
    def _output_names(self) -> frozenset[str]:
        return frozenset({*self.run.manifest.outputs, *self.run.manifest.handed_out} - {""})

    @cached_property
    def _input_names(self) -> frozenset[str]:
        return frozenset(self.run.manifest.inputs)

    def _is_output(self, spec: Arg) -> bool:
        names = {spec.name, spec.base}
        return bool(names & self._output_names) or (spec.written and bool(names & self._input_names))

    def _writes(self, order: int) -> Sequence[_Access]:
        """The writes of a launch, the last first."""
        found = self._found_writes.get(order)
        if found is None:
            if len(self._found_writes) >= _KEPT:
                self._found_writes.clear()
            found = self._found_writes[order] = self._find_writes(self.run.launches[order])
        return found

    def _find_writes(self, launch: Launch) -> Sequence[_Access]:
        site = launch.site
        slots = self._written_slots.get(site.id)
        if slots is None:
            written = (slot for slot, spec in enumerate(site.args) if spec.written)
            slots = self._written_slots[site.id] = tuple(written)[::-1]
        if not slots or launch.status is LaunchStatus.NOT_STARTED:
            return ()
        writes: list[_Access] = []
        tensors = launch.tensors()
        for slot in slots:
            span = _span_of_tensor(tensors[slot])
            if span is None or (site.args[slot].role is Role.UNKNOWN and not _overwrites(launch, launch.args[slot])):
                continue
            writes.append(_Access(launch, slot, span))
        return writes

    def _can_reach(self, access: _Access, launch: Launch, argument: Argument) -> bool:
        """True for a write in the same call; of earlier calls, only writes to weights and to mutated inputs persist."""
        same_call = (access.launch.key.kind, access.launch.key.call) == (launch.key.kind, launch.key.call)
        if same_call:
            return True
        return bool(input_or_weight_name(self.run.manifest, argument)) and _base(access.argument) == _base(argument)


def span_of(argument: Argument) -> ByteRange | None:
    """The range of bytes that contains an argument's elements; None if it is no tensor, empty, or of unknown layout."""
    return _span_of_tensor(argument.tensor)


def _span_of_tensor(tensor: Tensor | None) -> ByteRange | None:
    if tensor is None or tensor.data_ptr == 0:
        return None
    extent = tensor.layout.extent_bytes
    return ByteRange(tensor.layout.device, tensor.data_ptr, tensor.data_ptr + extent) if extent > 0 else None


def input_or_weight_name(manifest: Manifest, argument: Argument) -> str:
    """The user's name of the model input or weight that an argument is or is a view of; "" if it is neither."""
    names = (argument.spec.base, argument.name)
    for position, variable in enumerate(manifest.inputs):
        if variable in names:
            name = manifest.input_names[position] if position < len(manifest.input_names) else ""
            return name or variable
    return next((c.fqn or c.name for c in manifest.constants if c.name in names and not c.folded), "")


def kind_of_input(manifest: Manifest, name: str) -> str:
    """ "an input", "a weight", "a buffer": what of the model the user's name of an input or weight means.

    An input without a name of its own, as in a compiled package, is "input 3", counted from 0.
    """
    if name in manifest.inputs:
        return f"input {manifest.inputs.index(name)}"
    return wording.article(input_kind(manifest, name) or "weight")


def input_kind(manifest: Manifest, name: str) -> str:
    """ "input", "weight", "buffer" or "constant": what of the model a name means; "" if nothing has it."""
    if name in manifest.inputs or name in manifest.input_names:
        return "input"
    kind = next((constant.kind for constant in manifest.constants if name in (constant.fqn, constant.name)), None)
    return "" if kind is None else {"Buffer": "buffer", "TensorConstant": "constant"}.get(kind, "weight")


def model_name(manifest: Manifest, argument: Argument) -> str:
    """The user's name of an argument that is a model input or weight, or a view of one; else its name in the launch."""
    return input_or_weight_name(manifest, argument) or argument.name


def output_name(manifest: Manifest, argument: Argument) -> str:
    """ "output 0 (buf6)", or "x, which it mutates" of an input that the model writes to."""
    names = (argument.name, argument.spec.base)
    for position, variable in enumerate(manifest.outputs):
        if variable and variable in names:
            return f"output {position} ({variable})"
    return f"{model_name(manifest, argument)}, which it mutates"


def _base(argument: Argument) -> str:
    return argument.spec.base or argument.name


def _reads(argument: Argument) -> bool:
    return argument.role in (Role.IN, Role.INOUT, Role.UNKNOWN)


def _overwrites(launch: Launch, argument: Argument) -> bool:
    """True if the launch may have overwritten the argument: its bytes before and after are not known to be equal."""
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
