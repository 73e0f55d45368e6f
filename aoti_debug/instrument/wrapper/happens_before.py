"""The order of launches on streams, as far as it is sure, and of kernels that begin before others end.

Launches of one stream run one after the other; events that are recorded and waited for, and waits of the host, order
launches of different ones. A kernel that is launched as dependent (programmatic dependent launch) may begin before the
one before it on its stream has ended: only what it does behind `gdc_wait()` is ordered.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax.functions import StreamAction, StreamStep
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Kind, Site

HOST = -1  # what the host itself runs: as if it were a stream
Clock = dict[int, int]  # of each stream, how many of its launches have surely ended before

# Operators that never wait for the device; others of torch that allocate their results may, to know the shape of these.
_NEVER_WAITS = re.compile(
    r"aten\.(?:_?convolution\w*|_scaled_dot_product_\w+|addmm|mm|bmm|baddbmm|_scaled_mm|topk|sort|cat|cumsum|cumprod"
    r"|_embedding_bag\w*|rand\w*|clone|abs|mul|add|sub|div|view_as_\w+|upsample_\w+|(?:avg|max)_pool\w+|_?fft_\w+)\."
)
_ACCESS = re.compile(r"load|store|atomic_\w+|gather|scatter")


@dataclass(frozen=True)
class OrderedLaunch:
    """A launch in an order.

    Attributes:
        index: its number among the launches of its stream, from 1.
        before: of each stream, the index of the last launch that has surely ended before this one begins.
    """

    stream: int
    index: int
    before: Mapping[int, int]


@dataclass(frozen=True)
class Order:
    """The order of the launches of a function.

    Attributes:
        launches: by site.
        end: what has ended on the stream of the call when the function returns.
    """

    launches: Mapping[int, OrderedLaunch]
    end: Mapping[int, int]

    def has(self, first: int, second: int) -> bool:
        """True if the launch of a site has surely ended before that of another begins."""
        one, other = self.launches[first], self.launches[second]
        return one.stream == other.stream or other.before.get(one.stream, 0) >= one.index


class Orders:
    """Works out an order, statement by statement."""

    def __init__(self, *, is_loose: bool) -> None:
        self._is_loose = is_loose
        self._clocks: defaultdict[int, Clock] = defaultdict(dict)
        self._clocks[0] = {0: 1}  # the caller's work
        self._host: Clock = {}
        self._events: dict[int, Clock] = {}
        self._launches: dict[int, OrderedLaunch] = {}

    def step(self, step: StreamStep) -> None:
        """Takes a statement that orders streams into account."""
        if step.action is StreamAction.UNREAD:
            self._may_wait()
        elif step.action is StreamAction.RECORD:
            now = joined(self._clocks[step.stream], self._host)
            before = self._events.get(step.event, {})
            if step.is_conditional:
                now = joined(before, now) if self._is_loose else {s: min(n, now.get(s, 0)) for s, n in before.items()}
            self._events[step.event] = now
        elif self._is_loose or not step.is_conditional:
            event = self._events.get(step.event, {})
            if step.action is StreamAction.WAIT:
                self._clocks[step.stream] = joined(self._clocks[step.stream], event)
            elif step.action is StreamAction.SYNCHRONIZE:
                self._host = joined(self._host, event)
            else:
                self._wait()

    def launch(self, site: Site, stream: int) -> None:
        """Takes a launch into account."""
        unsure = may_wait(site)
        if unsure:
            self._may_wait()
        before = joined(self._clocks[stream], self._host)
        index = before.get(stream, 0) + 1
        self._launches[site.id] = OrderedLaunch(stream, index, before)
        self._clocks[stream] = before | {stream: index}
        if stream == HOST or traits_of(site.kind).waits_for_device:
            self._host = joined(self._host, self._clocks[stream])
        if unsure:
            self._may_wait()

    def order(self) -> Order:
        """The order of all that was taken into account."""
        return Order(self._launches, joined(self._clocks[0], self._host))

    def _wait(self) -> None:
        for clock in self._clocks.values():
            self._host = joined(self._host, clock)

    def _may_wait(self) -> None:
        if self._is_loose:
            self._wait()


def joined(one: Mapping[int, int], other: Mapping[int, int]) -> Clock:
    """The clock of all that has ended by either of two."""
    return {stream: max(one.get(stream, 0), other.get(stream, 0)) for stream in {*one, *other}}


def may_wait(site: Site) -> bool:
    """True if it is not known whether the host waits for the device in an operator."""
    if site.kind in (Kind.PROXY, Kind.CUSTOM_SHIM):
        return True
    return site.kind in (Kind.SHIM_ALLOC, Kind.SHIM_INPLACE) and not _NEVER_WAITS.match(site.op)


def waited_for(order: Order) -> Mapping[int, tuple[int, ...]]:
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


@dataclass(frozen=True)
class EarlyAccesses:
    """The accesses of a kernel before the kernels before it have ended, if it is launched as dependent.

    Attributes:
        parameters: those whose memory it touches before it waits for the kernels before it.
        waits: it does wait for them.
        lets_begin: it lets the next kernel begin before it has ended itself.
    """

    parameters: frozenset[str]
    waits: bool
    lets_begin: bool


def early_accesses(source: str) -> EarlyAccesses | None:
    """The accesses of a Triton kernel before it waits, by the lines of its source; None if that is not understood.

    Args:
        source: in Python; the last function in it is the kernel.
    """
    try:
        functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    except SyntaxError:
        return None
    if not functions:
        return None
    return _early(functions[-1])


def _early(kernel: ast.FunctionDef) -> EarlyAccesses:
    pointers = {arg.arg: frozenset({arg.arg}) for arg in kernel.args.args}  # of each variable, the parameters in it
    nodes = sorted((n for n in ast.walk(kernel) if isinstance(n, ast.expr | ast.stmt)), key=lambda n: n.lineno)
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    wait = min((call.lineno for call in calls if _called(call) == "gdc_wait"), default=None)
    for node in nodes:
        if isinstance(node, ast.Assign) and not _touches(node.value):
            for target in node.targets:
                pointers |= {name.id: _parameters(node.value, pointers) for name in _names(target)}
    touched = [call for call in calls if _touches(call) and (wait is None or call.lineno < wait)]
    return EarlyAccesses(
        parameters=frozenset[str]().union(*(_parameters(_pointer(call), pointers) for call in touched)),
        waits=wait is not None,
        lets_begin=any(_called(call) == "gdc_launch_dependents" for call in calls),
    )


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _touches(node: ast.AST) -> bool:
    """True of a load, a store or an atomic operation: `tl.load(...)`, `descriptor.store(...)`."""
    return isinstance(node, ast.Call) and bool(_ACCESS.match(_called(node)))


def _pointer(call: ast.Call) -> ast.AST:
    """The pointer of an access, or the descriptor that is asked for it."""
    assert isinstance(call.func, ast.Attribute)
    is_module = isinstance(call.func.value, ast.Name) and call.func.value.id == "tl"
    return call.args[0] if is_module and call.args else call.func.value


def _parameters(node: ast.AST, pointers: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*(pointers.get(name.id, frozenset()) for name in _names(node)))


def _names(node: ast.AST) -> list[ast.Name]:
    return [name for name in ast.walk(node) if isinstance(name, ast.Name)]
