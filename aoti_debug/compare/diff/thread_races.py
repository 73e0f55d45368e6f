"""Races of host threads: launches of two threads that are passed the same bytes, one writing, in no order.

Only what a run has recorded counts: the memory that each launch was passed, and when. A call holds a buffer from its
first launch that uses it to its last one, in each iteration of a loop, and an output until the call ends, unless a loop
carries it; no allocator gives its memory to another call meanwhile. The weights and states of a package are there all
the time: calls that overlap hold them from their beginning to their end. Where two threads hold the same bytes at a
time, nothing orders what they do with them, but the stream of a device if it is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from itertools import product
from typing import NamedTuple

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.diff.pairs import RecordedTensor
from aoti_debug.instrument.wrapper.model_variables import Elements, overlap
from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Form, Kind, Role, Site
from aoti_debug.runs.diagnosis.dataflow import input_or_weight_name
from aoti_debug.runs.rundir import threads_json
from aoti_debug.runs.rundir.launch import Argument, Launch, LaunchStatus, ModelCall
from aoti_debug.runs.rundir.run_directory import RunDir

MOST_LAUNCHES = 20_000  # of a run that are looked at, the first ones
_OF_THE_MODEL = (Kind.PROXY, Kind.CUSTOM_SHIM)  # operators that may hold a lock of their own
_NEVER = 1 << 63  # a time after all others
_NO_DEVICE, _OF_THREAD = -1, 2  # as the handle of a stream: CU_STREAM_PER_THREAD is another one in each thread


class Meanwhile(Enum):
    """The evidence that two launches are in no order, the strongest first."""

    BOTH_RAN = "both ran at the same time"
    BETWEEN = "one ran between two launches of the other's call that use these bytes"
    BOTH_CALLS = "their calls ran at the same time"


@dataclass(frozen=True)
class RaceSide:
    """A side of a race.

    Attributes:
        argument: the tensor, as the launch names it.
        does: "reads", "writes", "reads and writes", "returns", "may write".
        thread: its number among the threads of the plan; of a run without one the id that the system gave it.
    """

    launch: Launch
    argument: str
    does: str
    thread: int


@dataclass(frozen=True, kw_only=True)
class ThreadRace:
    """Two launches of different threads that are passed the same bytes, one writing, in no order.

    Attributes:
        first: the one that began first.
        memory: the user's name of the weight, the state or the input; else the variable of the first one.
        bytes: from the first to behind the last that both are passed: of the weight, else of the first call's memory.
        around: of BETWEEN: the launches of the first's call before and after the second one that use these bytes.
        calls: pairs of calls in which it was seen with this evidence.
        is_shared: it is a weight or a state, which all calls of the package share.
        doubt: why it may be none; "" if it is one.
    """

    first: RaceSide
    second: RaceSide
    memory: str
    bytes: tuple[int, int]
    meanwhile: Meanwhile
    is_shared: bool = False
    around: tuple[Launch, ...] = ()
    calls: int = 1
    doubt: str = ""


class _Use(NamedTuple):
    """A tensor that a launch was passed; a named tuple, as a run has many of them.

    Attributes:
        since: from when on it is surely there, in nanoseconds of the run: of what a launch allocates, its end.
    """

    launch: Launch
    slot: int
    tensor: Tensor
    since: int
    until: int

    @property
    def begin(self) -> int:
        return self.tensor.data_ptr

    @property
    def end(self) -> int:
        return self.begin + self.tensor.layout.extent_bytes

    @property
    def argument(self) -> Argument:
        return self.launch.args[self.slot]

    @property
    def is_returned(self) -> bool:
        return _is_returned(self.launch.site, self.slot)

    @property
    def writes(self) -> bool:
        return self.launch.site.args[self.slot].written

    @property
    def does(self) -> str:
        if self.is_returned:
            return "returns"
        role = self.launch.site.args[self.slot].role
        return {Role.IN: "reads", Role.INOUT: "reads and writes", Role.UNKNOWN: "may write"}.get(role, "writes")


class _Hold:
    """The uses of a buffer in a call, in the order of their beginnings, and the time in which the call holds it."""

    def __init__(self, call: ModelCall, *, lasts: bool) -> None:
        self.call, self.lasts = call, lasts
        self.is_output = False
        self.uses: list[_Use] = []
        self.origin = self.begin = self.end = self.since = self.until = 0

    def complete(self) -> _Hold:
        self.begin, self.end = min(use.begin for use in self.uses), max(use.end for use in self.uses)
        self.origin = min(use.tensor.storage_ptr for use in self.uses) if self.lasts else self.begin
        self.since, self.until = min(use.since for use in self.uses), max(use.until for use in self.uses)
        if self.lasts:
            self.since = self.call.begin_ns
        if self.lasts or self.is_output:
            self.until = _NEVER if self.call.end_ns is None else self.call.end_ns
        return self

    def meets(self, other: _Hold) -> bool:
        return self.begin < other.end and other.begin < self.end


def find(run: RunDir) -> tuple[ThreadRace, ...]:
    """The races of the calls of a model, those without doubt first; one for each memory.

    Raises:
        RunDirError: a record is damaged.
    """
    if len({call.thread for call in run.timeline.calls}) < 2:
        return ()
    search = _Search(run)
    races: dict[tuple[str, str], ThreadRace] = {}
    seen: defaultdict[tuple[tuple[str, str], tuple[bool, int]], set[tuple[int, int]]] = defaultdict(set)
    for one, other in _pairs(_holds(run)):
        race = search.race(one, other)
        if race is None:
            continue
        names = sorted((race.first.argument, race.second.argument)) if not one.lasts else (race.memory, race.memory)
        key = (names[0], names[1])
        seen[key, _rank(race)].add((one.call.call, other.call.call))
        if key not in races or _rank(race) < _rank(races[key]):
            races[key] = race
    found = [replace(race, calls=len(seen[key, _rank(race)])) for key, race in races.items()]
    return tuple(sorted(found, key=lambda race: (bool(race.doubt), race.first.launch.begin_ns)))


def _rank(race: ThreadRace) -> tuple[bool, int]:
    return (bool(race.doubt), list(Meanwhile).index(race.meanwhile))


def _holds(run: RunDir) -> Iterable[_Hold]:
    """What the calls of the model hold, but for those that a CUDA graph captured."""
    calls = {call.call: call for call in run.timeline.calls if call.kind is CallKind.MODEL and not call.capturing}
    lasting = {constant.name for constant in run.manifest.constants}
    outputs = {*run.manifest.outputs} - {""}
    holds: dict[tuple[int, str, tuple[int, ...]], _Hold] = {}
    for position in range(min(len(run.launches), MOST_LAUNCHES)):
        launch = run.launches[position]
        call = calls.get(launch.key.call) if launch.key.kind is CallKind.MODEL else None
        if call is None or launch.status is LaunchStatus.NOT_STARTED:
            continue
        for use in _uses(launch):
            spec = launch.site.args[use.slot]
            name = spec.base or spec.name
            lasts = name in lasting
            key = (call.call, name, () if lasts else launch.loops)
            hold = holds.setdefault(key, _Hold(call, lasts=lasts))
            hold.uses.append(use)
    returned = outputs - {name for _, name, loops in holds if loops}  # a loop gives variables other memory each time
    for (_, name, _), hold in holds.items():
        hold.is_output = name in returned
    return [hold.complete() for hold in holds.values()]


def _uses(launch: Launch) -> Iterator[_Use]:
    """The tensors that a launch was passed or returns, but for views of others that it returns."""
    tensors = [
        (slot, tensor)
        for slot, tensor in enumerate(launch.tensors())
        if tensor is not None and tensor.data_ptr and tensor.layout.extent_bytes > 0
    ]
    until = _NEVER if launch.end_ns is None else launch.end_ns
    given = [tensor for slot, tensor in tensors if not _is_returned(launch.site, slot)]
    for slot, tensor in tensors:
        is_returned = _is_returned(launch.site, slot)
        if not (is_returned and any(_share_storage(tensor, other) for other in given)):
            yield _Use(launch, slot, tensor, until if is_returned else launch.begin_ns, until)


def _is_returned(site: Site, slot: int) -> bool:
    """True of a result whose memory is allocated in the launch, or was there before and is only handed out by it."""
    arg = site.args[slot]
    return arg.form is Form.OUTPUT_SLOT or (arg.role is Role.OUT and traits_of(site.kind).allocates_outputs)


def _share_storage(one: Tensor, other: Tensor) -> bool:
    return (
        one.layout.device == other.layout.device
        and one.storage_ptr < other.storage_ptr + other.layout.storage_bytes
        and other.storage_ptr < one.storage_ptr + one.layout.storage_bytes
    )


def _pairs(holds: Iterable[_Hold]) -> Iterator[tuple[_Hold, _Hold]]:
    """The holds of different threads that have bytes in common at the same time, one of them with a write."""
    for group in _by_memory(holds):
        active: list[_Hold] = []
        for hold in sorted(group, key=lambda one: one.since):
            active = [other for other in active if other.until >= hold.since]
            for other in active:
                if other.call.thread != hold.call.thread and hold.meets(other):
                    yield other, hold
            active.append(hold)


def _by_memory(holds: Iterable[_Hold]) -> Iterator[Sequence[_Hold]]:
    """Holds whose bytes overlap, directly or by way of others; only if several threads have them, and one writes."""
    devices: defaultdict[str, list[_Hold]] = defaultdict(list)
    for hold in holds:
        devices[hold.uses[0].tensor.layout.device].append(hold)
    for of_device in devices.values():
        group: list[_Hold] = []
        end = 0
        for hold in sorted(of_device, key=lambda one: one.begin):
            if group and hold.begin >= end:
                yield from _if_shared(group)
                group, end = [], 0
            group.append(hold)
            end = max(end, hold.end)
        yield from _if_shared(group)


def _if_shared(group: Sequence[_Hold]) -> Iterator[Sequence[_Hold]]:
    if len({hold.call.thread for hold in group}) > 1 and any(use.writes for hold in group for use in hold.uses):
        yield group


class _Search:
    """Finds the race of two holds."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._record = threads_json.read(run.path)
        self._calls = {call.call: call for call in run.timeline.calls if call.kind is CallKind.MODEL}
        self._changing: dict[tuple[int, int], bool] = {}  # of operators of the model's own, by site and argument

    def race(self, one: _Hold, other: _Hold) -> ThreadRace | None:
        """The race of two holds with the strongest evidence; None if there is none."""
        best: ThreadRace | None = None
        for pair in product(one.uses, other.uses):
            use, later = sorted(pair, key=lambda each: each.launch.begin_ns)
            if (use.writes or later.writes) and not self._is_one_stream(use, later):
                hold = one if use is pair[0] else other
                race = self._of(use, later, hold)
                if race is not None and (best is None or _rank(race) < _rank(best)):
                    best = race
        return best

    def _of(self, use: _Use, later: _Use, hold: _Hold) -> ThreadRace | None:
        shared = _overlap(use.tensor, later.tensor)
        begin, end = max(use.begin, later.begin), min(use.end, later.end)
        if begin >= end or shared is False:
            return None
        around = _around(later, [each for each in hold.uses if each.begin < end and begin < each.end])
        ran = later.since <= use.until and use.since <= later.until
        name = input_or_weight_name(self._run.manifest, use.argument)
        return ThreadRace(
            first=self._access(use),
            second=self._access(later),
            memory=name or use.argument.spec.base or use.argument.name,
            bytes=(begin - hold.origin, end - hold.origin),
            meanwhile=Meanwhile.BOTH_RAN if ran else Meanwhile.BETWEEN if around else Meanwhile.BOTH_CALLS,
            is_shared=hold.lasts,
            around=() if ran else around,
            doubt=self._doubt(use, later, is_sure=shared is True, is_between=bool(around)),
        )

    def _access(self, use: _Use) -> RaceSide:
        number = None if self._record is None else self._record.thread_number(use.launch.thread)
        return RaceSide(use.launch, use.argument.name, use.does, use.launch.thread if number is None else number)

    def _doubt(self, use: _Use, later: _Use, *, is_sure: bool, is_between: bool) -> str:
        writers = [each for each in (use, later) if each.writes]
        if not is_sure:
            return "it is not known whether they use the same bytes of it"
        if all(each.argument.role is Role.UNKNOWN and not each.is_returned for each in writers):
            return "it is not known whether it is written"
        if all(_only_returns(each) for each in writers) and not _is_changed(use, later):
            return "it is not known whether what is returned was written"
        if not any(map(self._is_seen_to_write, writers)) and not any(map(_changed, (use, later))):
            return "only its schema says that it is written: it was not seen to change"
        if not is_between and all(each.launch.site.kind in _OF_THE_MODEL for each in (use, later)):
            return "both are operators of the model's own, which may hold a lock"
        streams = self._stream(use), self._stream(later)
        if None in streams:
            return "it is not known whether they are on one stream"
        return "the default stream of the device may order them" if 0 in streams else ""

    def _is_seen_to_write(self, use: _Use) -> bool:
        """True unless it is of a custom operator that may write, by its schema, and was never seen to change it."""
        if use.is_returned or use.launch.site.kind not in _OF_THE_MODEL:
            return True
        key = (use.launch.site.id, use.slot)
        if key not in self._changing:
            launches = self._run.launches.of_sites(frozenset({use.launch.site.id}))[:MOST_LAUNCHES]
            self._changing[key] = any(_changed_in(launch, launch.args[use.slot]) for launch in launches)
        return self._changing[key]

    def _is_one_stream(self, one: _Use, other: _Use) -> bool:
        """True if one stream of a device orders two launches; by its handle, as each model numbers streams anew."""
        stream = self._stream(one)
        return stream is not None and stream not in (_NO_DEVICE, _OF_THREAD) and stream == self._stream(other)

    def _stream(self, use: _Use) -> int | None:
        """The handle of the stream that a launch was started on; None if it is not known."""
        if use.tensor.layout.device == "cpu":
            return _NO_DEVICE
        if self._run.manifest.stream_order is None:
            return self._calls[use.launch.key.call].stream
        return self._streams.get(use.launch.stream_slot)

    @cached_property
    def _streams(self) -> dict[int, int]:
        crumbs = self._run.crumbs
        return {} if crumbs is None else {crumb.stream_slot: crumb.stream for crumb in crumbs.crumbs}


def _only_returns(use: _Use) -> bool:
    """True of a result of an operator of the model's own, which may return what others use as well."""
    return use.is_returned and use.launch.site.kind in _OF_THE_MODEL


def _is_changed(one: _Use, other: _Use) -> bool:
    """True if two launches left other values in the same bytes."""
    if (one.begin, one.tensor.layout.shape, one.tensor.layout.strides) != (
        other.begin,
        other.tensor.layout.shape,
        other.tensor.layout.strides,
    ):
        return False
    hashes = [RecordedTensor(use.launch, use.argument, Phase.AFTER).hash for use in (one, other)]
    return None not in hashes and hashes[0] != hashes[1]


def _changed(use: _Use) -> bool:
    """True if a tensor that a launch was passed was seen to be another one after it."""
    return not use.is_returned and use.argument.role is not Role.OUT and _changed_in(use.launch, use.argument)


def _changed_in(launch: Launch, argument: Argument) -> bool:
    hashes = [RecordedTensor(launch, argument, phase).hash for phase in (Phase.BEFORE, Phase.AFTER)]
    return None not in hashes and hashes[0] != hashes[1]


def _around(use: _Use, others: Sequence[_Use]) -> tuple[Launch, ...]:
    """The last launch before a use and the first one after it; () if there is none on one side."""
    before = [other.launch for other in others if other.until <= use.since]
    after = [other.launch for other in others if other.launch.begin_ns >= use.until]
    if not before or not after:
        return ()
    return (max(before, key=lambda one: one.begin_ns), min(after, key=lambda one: one.begin_ns))


def _overlap(one: Tensor, other: Tensor) -> bool | None:
    """True if two tensors have a byte in common; None if that is not known."""
    first = min(one.data_ptr, other.data_ptr)
    return overlap(*(_elements(tensor, tensor.data_ptr - first) for tensor in (one, other)))


def _elements(tensor: Tensor, begin: int) -> Elements:
    size = tensor.layout.item_bytes
    return Elements(begin, (*tensor.layout.shape, size), (*(step * size for step in tensor.layout.strides), 1))
