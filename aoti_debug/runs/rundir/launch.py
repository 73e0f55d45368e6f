"""A launch with its arguments and device kernels, and a call of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum
from functools import cached_property
from typing import cast

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import Absent, Layout, Number, Tensor, Value, number
from aoti_debug.package.manifest import Arg, CType, Kernel, Role, Site
from aoti_debug.runs.rundir.formats import journal_records
from aoti_debug.runs.rundir.formats.journal import LaunchSource
from aoti_debug.runs.rundir.formats.journal_index import Seen, unpack
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey, Record, TensorFile, TensorStats


class LaunchStatus(str, Enum):
    """The end of a launch on the host."""

    OPEN = "open"  # began and did not return: it was running when the process ended
    RETURNED = "returned"
    NOT_STARTED = "not started"  # an empty grid
    FAILED = "failed"  # the callee returned an error or threw an exception


def _status(seen: int) -> LaunchStatus:
    if seen & Seen.NOT_STARTED:
        return LaunchStatus.NOT_STARTED
    if seen & Seen.FAILED:
        return LaunchStatus.FAILED
    return LaunchStatus.RETURNED if seen & Seen.ENDED else LaunchStatus.OPEN


STATUS = tuple(map(_status, range(256)))  # by bits of `Seen`


@dataclass(frozen=True)
class Argument:
    """One recorded value of a launch: a tensor, an element of a list, a number.

    `before` and `after` differ only for output slots, which are unset before their launch.
    """

    slot: int  # index in Site.args
    spec: Arg
    before: Value
    after: Value
    files: dict[Phase, TensorFile] = field(default_factory=dict)
    stats: dict[Phase, TensorStats] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name, unique in its launch: "buf4"."""
        return self.spec.name

    @property
    def role(self) -> Role:
        """The direction: input, output or both."""
        return self.spec.role

    @property
    def written(self) -> bool:
        """True if the launch may have written it."""
        return self.spec.written

    @property
    def has_data_before(self) -> bool:
        """True if what it holds before the launch are values, not memory that nothing has written."""
        return self.role is not Role.OUT and not self.spec.fresh

    @property
    def tensor(self) -> Tensor | None:
        """The tensor after the launch, else the one before it; None if it is no tensor."""
        value = self.after if isinstance(self.after, Tensor) else self.before
        return value if isinstance(value, Tensor) else None

    @property
    def layout(self) -> Layout | None:
        """The tensor's layout; if the journal has none (an output of the proxy executor), that of its statistics."""
        tensor = self.tensor
        if tensor is not None:
            return tensor.layout
        return next((stats.layout for stats in self.stats.values() if stats.layout is not None), None)


@dataclass(frozen=True)
class GridArgument:
    """An argument that launchKernel passed to a device kernel."""

    name: str
    ctype: str
    value: Number


@dataclass(frozen=True)
class Grid:
    """The launch configuration and arguments of a device kernel."""

    kernel: str  # name of the device kernel
    grid: tuple[int, int, int]
    num_warps: int
    shared_bytes: int
    arguments: tuple[GridArgument, ...]


@dataclass(frozen=True)
class ModelCall:
    """A call of the model, or of its constant folding."""

    kind: CallKind
    call: int
    thread: int
    level: int
    capturing: bool  # under CUDA graph capture
    stream_slot: int
    stream: int
    ended: bool
    failed: bool
    begin_ns: int  # from the journal's start
    end_ns: int | None
    replays: int | None  # of its CUDA graph, that had begun when their statistics were recorded; None: there are none

    def __str__(self) -> str:
        return f"{'c' if self.kind is CallKind.CONSTANT else ''}{self.call}"


class Launch:
    """One execution of a site. Its records are decoded when they are asked for.

    Attributes:
        key: its call and its place in that.
    """

    def __init__(self, source: LaunchSource, position: int) -> None:
        """`position`: of the launch in its run."""
        self._source = source
        self._position = position
        self._seen = source.seen[position]
        self.site: Site = source.sites[source.columns.sites[position]]
        self.key: LaunchKey = unpack(source.columns.keys[position])

    def __repr__(self) -> str:
        return f"Launch({self.id} {self.kernel}, {self.status.value})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Launch) and (self._source, self._position) == (other._source, other._position)

    def __hash__(self) -> int:
        return hash(self._position)

    @cached_property
    def begin(self) -> journal_records.LaunchBegin:
        """Its beginning."""
        return cast(journal_records.LaunchBegin, self._source.record(self._source.columns.begins[self._position]))

    @cached_property
    def end(self) -> journal_records.LaunchEnd | None:
        """Its return; None if it did not return."""
        place = self._source.columns.ends[self._position]
        return cast(journal_records.LaunchEnd, self._source.record(place)) if place else None

    @cached_property
    def _further(self) -> Sequence[Record]:
        return self._source.further(self._position)

    @cached_property
    def grid_records(self) -> tuple[journal_records.GridRecord, ...]:
        """The records of device kernels."""
        return tuple(x for x in self._further if isinstance(x, journal_records.GridRecord)) if self.has_grids else ()

    @cached_property
    def files(self) -> tuple[TensorFile, ...]:
        """The tensors that were saved, or not saved for a reason."""
        return tuple(x for x in self._further if isinstance(x, TensorFile)) if self.is_measured else ()

    @cached_property
    def stats(self) -> tuple[TensorStats, ...]:
        """The records of its tensors at level 2 or hash, those of replays last; no argument is made for them."""
        found = [x for x in self._further if isinstance(x, TensorStats)] if self.is_measured else []
        return tuple(sorted(found, key=lambda x: x.replay is not None))

    @cached_property
    def fault(self) -> journal_records.FaultRecord | None:
        """The fault that was noticed in it."""
        return self._source.faults.get(self.key)

    @cached_property
    def printed(self) -> str | None:
        """The text that a print operator printed; None if it is none."""
        texts = [x.text for x in self._further if isinstance(x, journal_records.PrintRecord)]
        return texts[-1] if texts else None

    @property
    def thread(self) -> int:
        """The thread that ran it."""
        return self.begin.thread

    @property
    def stream_slot(self) -> int:
        """The stream of the breadcrumbs that it was launched on."""
        return self.begin.stream_slot

    @property
    def sequence(self) -> int:
        """Its number in the run, from 1, which a breadcrumb stores."""
        return self.begin.sequence

    @property
    def loops(self) -> tuple[int, ...]:
        """The iteration of each enclosing while loop, outermost first."""
        return self.begin.loops

    @property
    def begin_ns(self) -> int:
        """The time of its beginning, from the journal's start."""
        return self._source.columns.times[self._position]

    @property
    def end_ns(self) -> int | None:
        """The time of its return, from the journal's start; None if it did not return."""
        return None if self.end is None else self.end.time_ns

    @property
    def returned(self) -> int | None:
        """The callee's status code; None if it did not return."""
        return None if self.end is None else self.end.status

    @property
    def breadcrumb(self) -> bool:
        """True if the device was asked to write a breadcrumb after it."""
        return self.end is not None and self.end.breadcrumb

    @cached_property
    def status(self) -> LaunchStatus:
        """Its end on the host."""
        return STATUS[self._seen]

    @property
    def id(self) -> str:
        """The launch id: "0.3", "c0.1"."""
        return str(self.key)

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return self.site.kernel

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """The device kernels that launchKernel started."""
        return tuple(_grid(record, self._source.kernels.get(record.kernel)) for record in self.grid_records)

    @property
    def has_grids(self) -> bool:
        """True if launchKernel started a device kernel."""
        return bool(self._seen & Seen.GRIDS)

    @property
    def grid(self) -> Grid | None:
        """The first device kernel; None if there is none."""
        return self.grids[0] if self.grids else None

    @cached_property
    def args(self) -> tuple[Argument, ...]:
        """The recorded values, one for each of the site's args."""
        before, changed = self._values()
        after = {**before, **changed} if changed else before
        # by name: a tensor that is passed twice is recorded once
        files: dict[str, dict[Phase, TensorFile]] = {}
        stats: dict[str, dict[Phase, TensorStats]] = {}
        for f in self.files:
            files.setdefault(self.site.args[f.slot].name, {})[f.phase] = f
        for s in self.stats:
            stats.setdefault(self.site.args[s.slot].name, {})[s.phase] = s
        return tuple(
            Argument(
                slot,
                spec,
                before.get(slot, Absent.OPAQUE),
                after.get(slot, Absent.OPAQUE),
                files.get(spec.name) or {},
                stats.get(spec.name) or {},
            )
            for slot, spec in enumerate(self.site.args)
        )

    @property
    def is_measured(self) -> bool:
        """True if the run has a record of the values of its tensors: of a saved one, or of statistics."""
        return bool(self._seen & Seen.MEASURED)

    def tensor(self, slot: int) -> Tensor | None:
        """The tensor of an argument, as `Argument.tensor` is; no argument is made for it."""
        before, changed = self._values()
        return _tensor(before.get(slot), changed.get(slot))

    def tensors(self) -> list[Tensor | None]:
        """The tensor of each argument, as `Argument.tensor` is; no argument is made for it."""
        before, changed = self._values()
        slots = range(len(self.site.args))
        if changed:
            return [_tensor(before.get(slot), changed.get(slot)) for slot in slots]
        return [value if isinstance(value, Tensor) else None for value in map(before.get, slots)]

    def _values(self) -> tuple[Mapping[int, Value], Mapping[int, Value]]:
        """The values of arguments before the launch, and those that it changed."""
        source, position = self._source, self._position
        before = source.values(source.columns.begins[position])
        return before, self.end.values.decode() if self._seen & Seen.CHANGED and self.end else {}

    @property
    def replays(self) -> frozenset[int]:
        """The replays of its CUDA graph that its statistics are of."""
        if not self._seen & Seen.REPLAYED:
            return frozenset()
        found = (stats.replay for argument in self.args for stats in argument.stats.values())
        return frozenset(replay for replay in found if replay is not None)

    @property
    def replay(self) -> int | None:
        """The last replay of its CUDA graph that measured one of its tensors; None if none did."""
        return max(self.replays, default=None)

    def argument(self, name: str) -> Argument | None:
        """The argument of a name; None if there is none."""
        return next((argument for argument in self.args if argument.name == name), None)


def _tensor(before: Value | None, changed: Value | None) -> Tensor | None:
    """What a launch left in an argument, or what it was passed; None if neither is a tensor."""
    if isinstance(changed, Tensor):
        return changed
    return before if isinstance(before, Tensor) else None


def _grid(record: journal_records.GridRecord, kernel: Kernel | None) -> Grid:
    params = kernel.params if kernel else ()
    arguments = tuple(
        GridArgument(params[i].name, params[i].ctype, number(bits, params[i].type))
        if i < len(params)
        else GridArgument(f"arg{i}", "", Number(bits, CType.U64))
        for i, bits in enumerate(record.arguments)
    )
    return Grid(
        kernel.name if kernel else f"kernel {record.kernel}",
        record.grid,
        record.num_warps,
        record.shared_bytes,
        arguments,
    )
