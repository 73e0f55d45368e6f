"""Races between the streams of a wrapper: launches that touch the same memory in no order, one of them writing.

Two orders are worked out from the text. In the strict one only what surely orders launches does: events that are
recorded and waited for, and waits of the host. In the loose one also what may: statements in branches and loops,
operators that may wait for the device, what is not read. A race without doubt is one in the loose order as well.
Kernels that may begin before the one before them on their stream has ended race with it.
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
from aoti_debug.instrument.wrapper.happens_before import (
    HOST,
    EarlyAccesses,
    Order,
    Orders,
    early_accesses,
    waited_for,
)
from aoti_debug.instrument.wrapper.launches.sites import SiteCall
from aoti_debug.instrument.wrapper.model_variables import Memories, overlap
from aoti_debug.package.launch_traits import RunsOn, traits_of
from aoti_debug.package.manifest import Arg, Form, Kernel, Role, Site, Unrecognised
from aoti_debug.package.stream_order import Race, Racer, StreamOrder

CALLER = -1  # the caller of the model: as if it were a site

_CPU_OPERATOR = re.compile(r"aoti_torch_cpu_")


@dataclass(frozen=True)
class Found:
    """The races of a function.

    Attributes:
        order: None if all of it runs on the stream of the call.
        waits_for: of each site, those that it waits for (`Site.waits_for`).
    """

    order: StreamOrder | None = None
    waits_for: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Launched:
    """The launches of a wrapper.

    Attributes:
        calls: its launches.
        unread: its calls that look like launches and are not read.
        kernels: of its launches.
        inputs: the variables of the model's inputs.
    """

    calls: Sequence[SiteCall]
    unread: Sequence[Unrecognised]
    kernels: Sequence[Kernel]
    inputs: Sequence[str]


def find(masked: str, body: Body, launched: Launched) -> Found:
    """Looks for races in a function.

    Args:
        masked: the wrapper without comments and strings (lexer.mask).
    """
    own = [call for call in launched.calls if call.site.function == body.name]
    regions = other_streams(masked, body)
    statements = steps(masked, body)
    numbers = {call.site.stream for call in own} | {step.stream for step in statements}
    numbers |= {region.number for region in regions if region.number is not None}
    early = {kernel.name: early_accesses(kernel.source) for kernel in launched.kernels if kernel.overlaps}
    several = regions or numbers - {0, HOST} or any(step.action is not StreamAction.UNREAD for step in statements)
    if not several and not early:
        return Found()
    unread = [call for call in launched.unread if call.function == body.name]
    may_order = [StreamStep(_offset(masked, call.line), StreamAction.UNREAD, call.text) for call in unread]
    search = _Search(masked, body, replace(launched, calls=own), (*statements, *may_order))
    undecided = [*_undecided(statements, own, unread)] if several else []
    undecided += [f"what {name} does before it waits is not known" for name, found in early.items() if found is None]
    return search.result(tuple(sorted(numbers - {0, HOST})), tuple(undecided))


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


class _Search:
    """Looks for races among the launches of one function."""

    def __init__(self, masked: str, body: Body, launched: Launched, statements: Sequence[StreamStep]) -> None:
        calls = launched.calls
        self._memories = Memories(masked, body)
        self._calls = {call.site.id: call for call in calls}
        self._steps = statements
        self._regions = other_streams(masked, body)
        self._inputs = frozenset(launched.inputs) | self._memories.inputs
        self._kernels = {kernel.name: kernel for kernel in launched.kernels}
        blocks = conditional_blocks(masked, body)
        self._conditional = {call.site.id for call in calls if is_within(call.call.head.start, blocks)}
        self._strict, self._loose = (self._order(is_loose=is_loose) for is_loose in (False, True))

    def _order(self, *, is_loose: bool) -> Order:
        orders = Orders(is_loose=is_loose)
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
        found = [*self._between_launches(), *self._early(), *self._with_caller(), *self._by_allocator()]
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

    def _early(self) -> Iterator[Race]:
        """Kernels that may begin while the launch before them on their stream still runs, and touch its memory then."""
        by_stream: defaultdict[int, list[Site]] = defaultdict(list)
        for call in sorted(self._calls.values(), key=lambda call: call.call.head.start):
            by_stream[_runs_on(call.site)].append(call.site)
        for sites in (sites for stream, sites in by_stream.items() if stream != HOST):
            for number, site in enumerate(sites):
                early = self._accesses(site) if self._begins_early(site) else None
                if early is None:
                    continue
                for before in reversed(sites[:number]):
                    yield from self._beginning_early(before, site, early)
                    accesses = self._accesses(before)
                    if accesses is None or accesses.waits or not self._begins_early(before):
                        break  # what is before it has ended when it lets the next one begin

    def _begins_early(self, site: Site) -> bool:
        """True if a launch may begin before the one before it on its stream has ended."""
        return site.kernel in self._kernels and self._kernels[site.kernel].overlaps

    def _accesses(self, site: Site) -> EarlyAccesses | None:
        return early_accesses(self._kernels[site.kernel].source) if site.kernel in self._kernels else None

    def _beginning_early(self, before: Site, site: Site, early: EarlyAccesses) -> Iterator[Race]:
        touched = [arg for arg in site.args if arg.base and (arg.param in early.parameters or not early.waits)]
        seen: set[str] = set()
        for one, other in product([arg for arg in before.args if arg.base], touched):
            root = self._memories.owner(other.base)
            shared = overlap(self._memories.part(one), self._memories.part(other))
            is_same = self._memories.owner(one.base) == root and (one.written or other.written)
            if is_same and shared is not False and root not in seen:
                seen.add(root)
                first, second = _Access(before.id, one, root), _Access(site.id, other, root)
                waits = "it waits (gdc_wait) only after that" if early.waits else "it never waits (gdc_wait) for it"
                missing = f"{site.kernel} may begin before {before.kernel} has ended, and {waits}"
                race = Race(self._racer(first), self._racer(second), root, missing)
                race = replace(race, bytes=self._memories.shared_bytes(one, other))
                yield replace(race, doubt=self._early_doubt(before, site, is_sure=shared is True))

    def _early_doubt(self, before: Site, site: Site, *, is_sure: bool) -> str:
        if {before.id, site.id} & self._conditional:
            return "one of them runs only in a branch or a loop"
        if not is_sure:
            return "it is not known whether they touch the same bytes of it"
        begin, end = (self._calls[one.id].call.head.start for one in (before, site))
        if any(begin < step.offset < end for step in self._steps):
            return "what is between them may order them"
        accesses = self._accesses(before)
        if accesses is None or not accesses.lets_begin:
            return f"{before.kernel} is not known to let it begin before it has ended"
        return ""

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
        race = replace(race, bytes=self._memories.shared_bytes(one.arg, other.arg))
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
