"""Races between the streams of a wrapper: launches that touch the same memory in no order, one of them writing.

Two orders are worked out from the text. In the strict one only what surely orders launches does: events that are
recorded and waited for, and waits of the host. In the loose one also what may: statements in branches and loops,
operators that may wait for the device, what is not read. A race without doubt is one in the loose order as well.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations, product

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax.functions import (
    Body,
    StreamAction,
    StreamStep,
    conditional_blocks,
    is_within,
    other_streams,
    steps,
)
from aoti_debug.instrument.wrapper.launches.sites import SiteCall
from aoti_debug.instrument.wrapper.model_variables import Memories, overlap
from aoti_debug.package.launch_traits import RunsOn, traits_of
from aoti_debug.package.manifest import Arg, Form, Kind, Race, Racer, Role, Site, StreamOrder, Unrecognised

HOST = -1  # what the host itself runs: as if it were a stream
CALLER = -1  # the caller of the model: as if it were a site
_Clock = dict[int, int]  # of each stream, how many of its launches have surely ended before

# Operators that never wait for the device; others of torch that allocate their results may, to know the shape of these.
_NEVER_WAITS = re.compile(
    r"aten\.(?:_?convolution\w*|_scaled_dot_product_\w+|addmm|mm|bmm|baddbmm|_scaled_mm|topk|sort|cat|cumsum|cumprod"
    r"|_embedding_bag\w*|rand\w*|clone|abs|mul|add|sub|div|view_as_\w+|upsample_\w+|(?:avg|max)_pool\w+|_?fft_\w+)\."
)
_CPU_OPERATOR = re.compile(r"aoti_torch_cpu_")


@dataclass(frozen=True)
class _Launch:
    """A launch in an order.

    Attributes:
        index: its number among the launches of its stream, from 1.
        before: of each stream, the index of the last launch that has surely ended before this one begins.
    """

    stream: int
    index: int
    before: Mapping[int, int]


@dataclass(frozen=True)
class _Order:
    """The order of the launches of a function.

    Attributes:
        launches: by site.
        end: what has ended on the stream of the call when the function returns.
    """

    launches: Mapping[int, _Launch]
    end: Mapping[int, int]

    def has(self, first: int, second: int) -> bool:
        """True if the launch of a site has surely ended before that of another begins."""
        one, other = self.launches[first], self.launches[second]
        return one.stream == other.stream or other.before.get(one.stream, 0) >= one.index


class _Orders:
    """Works out an order, statement by statement."""

    def __init__(self, *, is_loose: bool) -> None:
        self._is_loose = is_loose
        self._clocks: defaultdict[int, _Clock] = defaultdict(dict)
        self._clocks[0] = {0: 1}  # the caller's work
        self._host: _Clock = {}
        self._events: dict[int, _Clock] = {}
        self._launches: dict[int, _Launch] = {}

    def step(self, step: StreamStep) -> None:
        """Takes a statement that orders streams into account."""
        if step.action is StreamAction.UNREAD:
            self._may_wait()
        elif step.action is StreamAction.RECORD:
            now = _joined(self._clocks[step.stream], self._host)
            before = self._events.get(step.event, {})
            if step.is_conditional:
                now = _joined(before, now) if self._is_loose else {s: min(n, now.get(s, 0)) for s, n in before.items()}
            self._events[step.event] = now
        elif self._is_loose or not step.is_conditional:
            event = self._events.get(step.event, {})
            if step.action is StreamAction.WAIT:
                self._clocks[step.stream] = _joined(self._clocks[step.stream], event)
            elif step.action is StreamAction.SYNCHRONIZE:
                self._host = _joined(self._host, event)
            else:
                self._wait()

    def launch(self, site: Site, stream: int) -> None:
        """Takes a launch into account."""
        unsure = _may_wait(site)
        if unsure:
            self._may_wait()
        before = _joined(self._clocks[stream], self._host)
        index = before.get(stream, 0) + 1
        self._launches[site.id] = _Launch(stream, index, before)
        self._clocks[stream] = before | {stream: index}
        if stream == HOST or traits_of(site.kind).waits_for_device:
            self._host = _joined(self._host, self._clocks[stream])
        if unsure:
            self._may_wait()

    def order(self) -> _Order:
        """The order of all that was taken into account."""
        return _Order(self._launches, _joined(self._clocks[0], self._host))

    def _wait(self) -> None:
        for clock in self._clocks.values():
            self._host = _joined(self._host, clock)

    def _may_wait(self) -> None:
        if self._is_loose:
            self._wait()


def _joined(one: Mapping[int, int], other: Mapping[int, int]) -> _Clock:
    return {stream: max(one.get(stream, 0), other.get(stream, 0)) for stream in {*one, *other}}


def _may_wait(site: Site) -> bool:
    """True if it is not known whether the host waits for the device in an operator."""
    if site.kind in (Kind.PROXY, Kind.CUSTOM_SHIM):
        return True
    return site.kind in (Kind.SHIM_ALLOC, Kind.SHIM_INPLACE) and not _NEVER_WAITS.match(site.op)


@dataclass(frozen=True)
class Found:
    """The races of a function.

    Attributes:
        order: None if all of it runs on the stream of the call.
        waits_for: of each site, those that it waits for (`Site.waits_for`).
    """

    order: StreamOrder | None = None
    waits_for: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def find(
    masked: str, body: Body, calls: Sequence[SiteCall], unread: Sequence[Unrecognised], inputs: Sequence[str]
) -> Found:
    """Looks for races in a function.

    Args:
        masked: the wrapper without comments and strings (lexer.mask).
        calls: the launches of the wrapper.
        unread: the calls of the wrapper that look like launches and are not read.
        inputs: the variables of the model's inputs.
    """
    own = [call for call in calls if call.site.function == body.name]
    regions = other_streams(masked, body)
    statements = steps(masked, body)
    numbers = {call.site.stream for call in own} | {step.stream for step in statements}
    numbers |= {region.number for region in regions if region.number is not None}
    if not (regions or numbers - {0, HOST} or any(step.action is not StreamAction.UNREAD for step in statements)):
        return Found()
    unread = [call for call in unread if call.function == body.name]
    may_order = [StreamStep(_offset(masked, call.line), StreamAction.UNREAD, call.text) for call in unread]
    return _Search(masked, body, own, (*statements, *may_order), inputs).result(
        tuple(sorted(numbers - {0, HOST})), tuple(_undecided(statements, own, unread))
    )


def _offset(masked: str, line: int) -> int:
    """The offset at which a line begins, counted from 1."""
    return sum(len(text) + 1 for text in masked.split("\n")[: line - 1])


def _undecided(
    statements: Sequence[StreamStep], own: Sequence[SiteCall], unread: Sequence[Unrecognised]
) -> Iterator[str]:
    """The gaps of what is known of the order, a sentence each."""
    for text in dict.fromkeys(step.text for step in statements if step.action is StreamAction.UNREAD):
        yield f"{text} is not read: it may order streams"
    for call in unread:
        yield f"line {call.line} of the wrapper is not read: it may launch, and may order streams"
    recorded: set[int] = set()
    for step in statements:
        if step.action is StreamAction.RECORD:
            recorded.add(step.event)
        elif step.event >= 0 and step.event not in recorded:
            yield f"event {step.event} is waited for before this call has recorded it, which orders nothing in it"
    if any(call.site.loops for call in own):
        yield "launches of different iterations of a loop were not compared"


@dataclass(frozen=True)
class _Access:
    site: int
    arg: Arg
    root: str


def waited_for(order: _Order) -> Mapping[int, tuple[int, ...]]:
    """The sites that each site waits for, in `Site.waits_for`."""
    by_index = {(launch.stream, launch.index): site for site, launch in order.launches.items()}
    return {
        site: tuple(
            sorted(
                by_index[stream, index]
                for stream, index in launch.before.items()
                if stream != launch.stream and (stream, index) in by_index
            )
        )
        for site, launch in order.launches.items()
    }


class _Search:
    """Looks for races among the launches of one function."""

    def __init__(
        self,
        masked: str,
        body: Body,
        calls: Sequence[SiteCall],
        statements: Sequence[StreamStep],
        inputs: Sequence[str],
    ) -> None:
        self._memories = Memories(masked, body)
        self._calls = {call.site.id: call for call in calls}
        self._steps = statements
        self._regions = other_streams(masked, body)
        self._inputs = frozenset(inputs) | self._memories.inputs
        blocks = conditional_blocks(masked, body)
        self._conditional = {call.site.id for call in calls if is_within(call.call.head.start, blocks)}
        self._strict, self._loose = (self._order(is_loose=is_loose) for is_loose in (False, True))

    def _order(self, *, is_loose: bool) -> _Order:
        orders = _Orders(is_loose=is_loose)
        timed: list[tuple[int, StreamStep | SiteCall]] = [(step.offset, step) for step in self._steps]
        timed += [(call.call.head.start, call) for call in self._calls.values()]
        for _, item in sorted(timed, key=lambda pair: pair[0]):
            if isinstance(item, StreamStep):
                orders.step(item)
            else:
                orders.launch(item.site, _runs_on(item.site))
        return orders.order()

    def result(self, streams: tuple[int, ...], undecided: tuple[str, ...]) -> Found:
        """The races of the function, those without doubt first."""
        found = [*self._between_launches(), *self._with_caller(), *self._by_allocator()]
        found.sort(key=lambda race: (bool(race.doubt), race.second.site, race.first.site))
        waits = {site: sites for site, sites in waited_for(self._strict).items() if site not in self._conditional}
        return Found(StreamOrder(streams, tuple(found), undecided), waits)

    def _between_launches(self) -> Iterator[Race]:
        for root, accesses in self._by_memory().items():
            seen: dict[tuple[int, int], Race] = {}
            for one, other in combinations(accesses, 2):
                pair = (one.site, other.site)
                race = self._race(one, other, root)
                if race is not None and (pair not in seen or (seen[pair].doubt and not race.doubt)):
                    seen[pair] = race
            yield from seen.values()

    def _by_memory(self) -> Mapping[str, Sequence[_Access]]:
        accesses: defaultdict[str, list[_Access]] = defaultdict(list)
        for call in self._calls.values():
            for arg in call.site.args:
                if arg.base:
                    root = self._memories.owner(arg.base)
                    accesses[root].append(_Access(call.site.id, arg, root))
        return accesses

    def _race(self, one: _Access, other: _Access, root: str) -> Race | None:
        """The race of two accesses to the same memory; None if there is none."""
        if not (one.arg.written or other.arg.written) or self._strict.has(one.site, other.site):
            return None
        shared = overlap(self._memories.part(one.arg), self._memories.part(other.arg))
        if one.site == other.site or shared is False:
            return None
        race = Race(self._racer(one), self._racer(other), root, self._missing(one.site, other.site))
        return replace(race, doubt=self._doubt(one, other, is_sure=shared is True))

    def _doubt(self, one: _Access, other: _Access, *, is_sure: bool) -> str:
        if {one.site, other.site} & self._conditional:
            return "one of them runs only in a branch or a loop"
        if self._loose.has(one.site, other.site):
            return "an operator that may wait, a branch, or what is not read may order them"
        if HOST in (self._strict.launches[one.site].stream, self._strict.launches[other.site].stream):
            return "one of them runs on the host, which may have waited"
        if not is_sure:
            return "it is not known whether they touch the same bytes of it"
        writers = [access.arg for access in (one, other) if access.arg.written]
        if all(arg.role is Role.UNKNOWN for arg in writers):
            return "it is not known whether it is written"
        return ""

    def _racer(self, access: _Access) -> Racer:
        role = access.arg.role
        does = {Role.IN: "reads", Role.INOUT: "reads and writes", Role.UNKNOWN: "may write"}.get(role, "writes")
        if access.arg.form is Form.OUTPUT_SLOT:
            does = "writes"
        return Racer(access.site, self._strict.launches[access.site].stream, access.arg.name, does)

    def _missing(self, first: int, second: int) -> str:
        """The order that is missing between two launches, in words."""
        one, other = self._strict.launches[first], self._strict.launches[second]
        begin, end = (self._calls[site].call.head.start for site in (first, second))
        between = [step for step in self._steps if begin < step.offset < end]
        records = [s for s in between if s.action is StreamAction.RECORD and s.stream == one.stream]
        if not records:
            return f"no event is recorded on {stream_text(one.stream)} between them"
        for record in records:
            waits = [s for s in between if s.event == record.event and s.offset > record.offset]
            streams = [stream_text(s.stream) for s in waits if s.action is StreamAction.WAIT]
            if stream_text(other.stream) not in streams:
                who = f"only {', '.join(streams)} waits for it" if streams else "nothing waits for it between them"
                return f"event {record.event} is recorded on {stream_text(one.stream)} between them, and {who}"
        return "the events between them do not order them"

    def _by_allocator(self) -> Iterator[Race]:
        """Buffers that are given back while another stream may use them, and whose memory may be used again.

        The allocator gives memory again to the stream that it was allocated on, at once.
        """
        accesses = self._by_memory()
        for name, begin in self._memories.allocated.items():
            end, stream = self._memories.freed(name), self._stream_at(begin)
            others = [a for a in accesses.get(name, ()) if self._strict.launches[a.site].stream not in (stream, HOST)]
            later = [
                other
                for other, offset in self._memories.allocated.items()
                if end is not None and offset > end and self._stream_at(offset) == stream and accesses.get(other)
            ]
            for access, other in product(others, later):
                user = accesses[other][0]
                if not self._strict.has(access.site, user.site):
                    missing = self._missing(access.site, user.site)
                    doubt = f"the allocator may give the memory of {name} to {other}"
                    yield Race(self._racer(access), self._racer(user), name, missing, doubt)
                    break

    def _stream_at(self, offset: int) -> int | None:
        """The stream that memory is allocated on at an offset; None if it is not known."""
        region = next((region for region in self._regions if region.start < offset < region.end), None)
        return 0 if region is None else region.number

    def _with_caller(self) -> Iterator[Race]:
        """Inputs that side streams use before they wait for the caller's work, and outputs that stay behind on them."""
        for call in self._calls.values():
            site = call.site
            launch = self._strict.launches[site.id]
            if launch.stream in (0, HOST):
                continue
            for arg in site.args:
                root = self._memories.owner(arg.base) if arg.base else ""
                if root in self._inputs and launch.before.get(0, 0) < 1:
                    yield self._caller_race(site, arg, root, is_input=True)
                ended = self._strict.end.get(launch.stream, 0) >= launch.index
                if arg.written and root in self._memories.outputs and not ended:
                    yield self._caller_race(site, arg, root, is_input=False)

    def _caller_race(self, site: Site, arg: Arg, root: str, *, is_input: bool) -> Race:
        launch = self._racer(_Access(site.id, arg, root))
        stream = stream_text(launch.stream)
        if is_input:
            caller = Racer(CALLER, 0, root, "writes")
            missing = f"{stream} waits for nothing of stream 0 before it"
            return Race(caller, launch, root, missing, "the caller may still be writing it on stream 0")
        caller = Racer(CALLER, 0, root, "reads")
        missing = f"stream 0 does not wait for {stream} after it"
        return Race(launch, caller, root, missing, "the caller may use it on stream 0 before it is written")


def _runs_on(site: Site) -> int:
    """The stream of a launch, or HOST."""
    on_host = traits_of(site.kind).runs_on is RunsOn.HOST or _CPU_OPERATOR.match(site.callee)
    return HOST if on_host else site.stream


def stream_text(stream: int) -> str:
    """ "stream 1", or "the host"."""
    return "the host" if stream == HOST else f"stream {stream}"
