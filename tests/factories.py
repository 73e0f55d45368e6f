"""Builds manifests, journals, breadcrumbs and run directories as data, without a model and without the runtime."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from aoti_debug.base import abi, dtypes
from aoti_debug.base.abi import CallKind, FaultDomain, LaunchFlag, NoteCode, Phase, RecordType, SaveStatus, ValueTag
from aoti_debug.base.machine.files import results_home
from aoti_debug.package import manifest
from aoti_debug.package.argument_values import Absent, Layout, Number, Tensor, Value
from aoti_debug.package.manifest import (
    Arg,
    Certainty,
    CType,
    Form,
    Kernel,
    KernelParam,
    Kind,
    Manifest,
    ModelLine,
    Provenance,
    Role,
    Site,
)
from aoti_debug.package.pt2 import trust
from aoti_debug.runs.rundir import run_json
from aoti_debug.runs.rundir.formats.journal import Journal
from aoti_debug.runs.rundir.formats.journal_records import Record
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunInfo

_DTYPE_NUMBERS = {dtype.name: number for number, dtype in enumerate(dtypes.DTYPES)}
_LAYOUT_NUMBERS = {name: number for number, name in enumerate(dtypes.LAYOUTS)}
_DEVICE_NUMBERS = {name: number for number, name in enumerate(dtypes.DEVICE_TYPES)}
_TAGS = {
    Absent.UNSET: ValueTag.UNSET,
    Absent.NULL: ValueTag.NULL,
    Absent.TEXT: ValueTag.TEXT,
    Absent.OPAQUE: ValueTag.OPAQUE,
    Absent.UNDEFINED: ValueTag.UNDEFINED,
}


def tensor(
    *shape: int,
    dtype: str = "float32",
    device: str = "cpu",
    data_ptr: int = 0x1000,
    strides: Sequence[int] | None = None,
    storage_offset: int = 0,
    storage_bytes: int | None = None,
    kind: str = "strided",
) -> Tensor:
    """A contiguous tensor, unless strides are given."""
    item = dtypes.item_bytes(dtype)
    if strides is None:
        strides = [1] * len(shape)
        for dim in reversed(range(len(shape) - 1)):
            strides[dim] = strides[dim + 1] * max(shape[dim + 1], 1)
    layout = Layout(dtype, device, tuple(shape), tuple(strides), storage_offset, 0, item, kind)
    size = layout.bytes + storage_offset * item if storage_bytes is None else storage_bytes
    return Tensor(data_ptr, replace(layout, storage_bytes=size))


def arg(name: str, role: Role = Role.IN, form: Form = Form.TENSOR, **fields: Any) -> Arg:
    known: dict[str, Any] = {"param": "", "ctype": "AtenTensorHandle", "text": name, "value": 0} | fields
    return Arg(name=name, role=role, form=form, **known)


def site(
    kernel: str, *args: Arg, kind: Kind = Kind.SHIM_OUT, line: int | None = 12, id_: int = 0, **fields: Any
) -> Site:
    """A site; `line` is that of the model's source, None for a site without provenance."""
    frame = ModelLine("/home/u/model.py", line or 0, "forward", "y = torch.relu(x)")
    provenance = Provenance(Certainty.EXACT, source=(frame,)) if line else Provenance(Certainty.NONE)
    known: dict[str, Any] = {"function": "run_impl", "callee": kernel, "line": 100, "provenance": provenance} | fields
    numbered = tuple(replace(a, value=index) for index, a in enumerate(args))
    return Site(id=id_, kernel=kernel, kind=kind, args=numbered, **known)


def triton_kernel(name: str, id_: int = 0) -> Kernel:
    params = (
        KernelParam("in_ptr0", "CUdeviceptr", CType.ADDRESS),
        KernelParam("out_ptr0", "CUdeviceptr", CType.ADDRESS),
        KernelParam("xnumel", "int32_t", CType.I32),
    )
    source = f"@triton.jit\ndef {name}(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):\n    pass\n"
    return Kernel(name, "triton", source, "0" * 64, id=id_, num_warps=4, params=params)


def make_manifest(*sites: Site, kernels: Sequence[Kernel] = (), device: str = "cpu") -> Manifest:
    return Manifest(
        format=manifest.FORMAT,
        tool_version="0.1.0",
        torch_version="2.13.0",
        device=device,
        level=3,
        filters=(),
        sites=tuple(replace(s, id=index) for index, s in enumerate(sites)),
        kernels=tuple(kernels),
    )


class JournalWriter:
    """Writes journal.bin as the runtime does. `thread` and the clock are set by the test; a record advances the clock
    by 1000 ns."""

    def __init__(
        self, level: int = 3, pid: int = 4711, crumb_every: int = 0, block_bytes: int = abi.BLOCK_BYTES
    ) -> None:
        self.level = level
        self.pid = pid
        self.crumb_every = crumb_every
        self.blocks_reused = 0
        self.lost_records = 0
        self.open_calls = 0
        self.thread = 1
        self.time_ns = 0
        self.start_unix_ns = 1_700_000_000_000_000_000
        self.sequence = 0
        self._without_crumb = 0
        self._block_bytes = block_bytes
        self._blocks: list[bytearray] = []
        self._current: dict[int, int] = {}
        self._layouts: dict[int, dict[Layout, int]] = {}

    def call_begin(
        self,
        call: int = 0,
        kind: CallKind = CallKind.MODEL,
        stream_slot: int = 0,
        flags: int = 0,
        stream: int = 0x5,
    ) -> None:
        self._without_crumb = 0
        payload = abi.CALL_BEGIN.codec.pack(call, kind, self.level, stream_slot, 0xABC, stream)
        self._record(RecordType.CALL_BEGIN, payload, flags=flags)

    def call_end(self, call: int = 0, launches: int = 0, kind: CallKind = CallKind.MODEL, failed: bool = False) -> None:
        self._record(RecordType.CALL_END, abi.CALL_END.codec.pack(call, kind, failed, launches))

    def clock(self, unix_ns: int) -> None:
        self._record(RecordType.CLOCK, abi.WALL_CLOCK.codec.pack(unix_ns))

    def launch_begin(
        self,
        launch: int,
        site: int,
        *values: Value,
        call: int = 0,
        kind: CallKind = CallKind.MODEL,
        stream_slot: int = 0,
        loops: Sequence[int] = (),
    ) -> int:
        """Returns the launch's sequence number."""
        self.sequence += 1
        padded = [*loops, 0, 0, 0, 0][:4]
        layouts = [self._layout(value) for value in values]
        payload = abi.LAUNCH_BEGIN.codec.pack(
            call, kind, len(loops), stream_slot, launch, site, self.sequence, len(values), *padded
        )
        payload += b"".join(
            self._value(slot, v, layout) for slot, (v, layout) in enumerate(zip(values, layouts, strict=True))
        )
        self._record(RecordType.LAUNCH_BEGIN, payload)
        return self.sequence

    def launch_end(
        self,
        launch: int,
        outputs: dict[int, Value] | None = None,
        *,
        call: int = 0,
        kind: CallKind = CallKind.MODEL,
        status: int = 0,
        flags: int = 0,
    ) -> None:
        """`outputs`: output slot -> its value after the launch."""
        outputs = outputs or {}
        self._without_crumb += status == 0
        if self.crumb_every and self._without_crumb >= self.crumb_every and status == 0:
            self._without_crumb = 0
            flags |= LaunchFlag.CRUMB
        layouts = {slot: self._layout(value) for slot, value in outputs.items()}
        payload = abi.LAUNCH_END.codec.pack(call, launch, status, kind, len(outputs))
        payload += b"".join(self._value(slot, v, layouts[slot]) for slot, v in outputs.items())
        self._record(RecordType.LAUNCH_END, payload, flags=flags)

    def launch(self, launch: int, site: int, *values: Value, call: int = 0, **fields: Any) -> int:
        """A launch that returns."""
        sequence = self.launch_begin(launch, site, *values, call=call, **fields)
        self.launch_end(launch, call=call)
        return sequence

    def grid(self, launch: int, kernel: int, grid: tuple[int, int, int], *arguments: int, call: int = 0) -> None:
        payload = abi.GRID.codec.pack(call, launch, kernel, CallKind.MODEL, *grid, 4, 128, len(arguments))
        self._record(RecordType.GRID, payload + struct.pack(f"<{len(arguments)}Q", *arguments))

    def tensor_file(
        self,
        launch: int,
        slot: int,
        phase: Phase,
        path: str,
        *,
        size: int = 0,
        status: SaveStatus = SaveStatus.WRITTEN,
        reason: str = "",
        call: int = 0,
        content: int = 0,
    ) -> None:
        text, why = path.encode(), reason.encode()
        payload = abi.TENSOR_FILE.codec.pack(
            call, launch, slot, CallKind.MODEL, phase, status, size, content, content, len(text), len(why)
        )
        self._record(RecordType.TENSOR_FILE, payload + text + why)

    def tensor_stats(
        self,
        launch: int,
        slot: int,
        phase: Phase,
        statistics: Statistics | None,
        *,
        values: bytes = b"",
        layout: Layout | None = None,
        flags: int = 0,
        integer: int = 0,
        call: int = 0,
        kind: CallKind = CallKind.MODEL,
        content: int = 0xDEADBEEF12345678,
        replay: tuple[int, int] | None = None,
    ) -> None:
        """`replay`: that measured it, and how many had begun."""
        s = statistics or Statistics(0, 0, 0, 0, 0, None, None, 0, 0, 0.0, 0.0)
        extrema = [_bits(0 if value is None else value, integer) for value in (s.min, s.max)]
        layout_id = 0 if layout is None else self._layout(Tensor(0, layout))
        payload = abi.TENSOR_STATS.codec.pack(
            call,
            launch,
            slot,
            kind,
            phase,
            integer,
            s.numel,
            s.n_nan,
            s.n_pos_inf,
            s.n_neg_inf,
            s.n_zero,
            *extrema,
            s.min_index,
            s.max_index,
            s.mean,
            s.std,
            content,
            len(values),
            layout_id,
        )
        if replay is None:
            self._record(RecordType.TENSOR_STATS, payload + values, flags=flags)
        else:
            self._record(RecordType.REPLAY_STATS, abi.REPLAY_STATS.codec.pack(*replay) + payload + values, flags=flags)

    def fault(
        self, launch: int | None, domain: FaultDomain, code: int = -1, text: str = "it failed", call: int = 0
    ) -> None:
        data = text.encode()
        payload = abi.FAULT.codec.pack(call, launch or 0, CallKind.MODEL, launch is not None, domain, code, len(data))
        self._record(RecordType.FAULT, payload + data)

    def damage(self, launch: int, first: int, data: bytes, *, at: int, size: int, allocation: int = 0) -> None:
        """What a launch of call 0 wrote at offset `first` of the buffer of `size` bytes at address `at`."""
        last = first + len(data) - 1
        found = data[:16].ljust(16, b"\0")
        payload = abi.GUARD_DAMAGE.codec.pack(
            0, launch, allocation, CallKind.MODEL, at, size, first, last, len(data), *found
        )
        self._record(RecordType.GUARD, payload)

    def note(self, code: NoteCode, text: str) -> None:
        data = text.encode()
        self._record(RecordType.NOTE, abi.NOTE.codec.pack(code, len(data)) + data)

    def watch(self, text: str, watch: int = 0) -> None:
        body = text.encode()
        self._record(RecordType.WATCH, abi.WATCH.codec.pack(watch, len(body)) + body)

    def watch_count(self, hits: int, evaluated: int, unread: int = 0, watch: int = 0) -> None:
        self._record(RecordType.WATCH_COUNT, abi.WATCH_COUNT.codec.pack(watch, unread, hits, evaluated))

    def run_end(self, flags: int = 0) -> None:
        self._record(RecordType.RUN_END, b"", flags)

    def torn_record(self) -> None:
        """A record whose size was not stored yet."""
        self._append(abi.RECORD_HEADER.codec.pack(0, RecordType.NOTE, 0, self.time_ns) + b"\x55" * 24)

    def _record(self, type_: RecordType, payload: bytes, flags: int = 0) -> None:
        size = -(-(abi.RECORD_HEADER.size + len(payload)) // 8) * 8
        self.time_ns += 1000
        record = abi.RECORD_HEADER.codec.pack(size, type_, flags, self.time_ns) + payload
        self._append(record.ljust(size, b"\0"))

    def _append(self, record: bytes) -> None:
        self._reserve(len(record))
        self._blocks[self._current[self.thread]] += record

    def _reserve(self, size: int) -> None:
        index = self._current.get(self.thread)
        if index is None or len(self._blocks[index]) + size > self._block_bytes:
            header = abi.BLOCK_HEADER.codec.pack(abi.BLOCK_MAGIC, self.thread, len(self._blocks))
            self._blocks.append(bytearray(header))
            self._current[self.thread] = len(self._blocks) - 1
            self._layouts[self.thread] = {}

    def _layout(self, value: Value) -> int:
        """Writes the value's layout if this block has not got it yet."""
        if not isinstance(value, Tensor):
            return 0
        self._reserve(1024)
        known = self._layouts[self.thread]
        if value.layout not in known:
            layout, known[value.layout] = value.layout, len(known)
            device, _, index = layout.device.partition(":")
            payload = abi.LAYOUT.codec.pack(
                known[layout],
                _DTYPE_NUMBERS[layout.dtype],
                _DEVICE_NUMBERS[device],
                int(index or -1),
                _LAYOUT_NUMBERS[layout.kind],
                len(layout.shape),
                layout.storage_offset,
                layout.storage_bytes,
            )
            self._record(
                RecordType.LAYOUT, payload + struct.pack(f"<{2 * len(layout.shape)}q", *layout.shape, *layout.strides)
            )
        return known[value.layout]

    @staticmethod
    def _value(slot: int, value: Value, layout: int) -> bytes:
        if isinstance(value, Tensor):
            return abi.SLOT_VALUE.codec.pack(ValueTag.TENSOR, 0, slot, layout, value.data_ptr)
        if isinstance(value, Number):
            return abi.SLOT_VALUE.codec.pack(ValueTag.NUMBER, value.type, slot, 0, _number_bits(value))
        return abi.SLOT_VALUE.codec.pack(_TAGS[value], 0, slot, 0, 0)

    # The last one: in what follows in the class, its name would stand for it.
    def bytes(self) -> bytes:
        header = abi.JOURNAL_HEADER.codec.pack(
            abi.JOURNAL_MAGIC,
            abi.JOURNAL_VERSION,
            self._block_bytes,
            self.pid,
            self.level,
            self.start_unix_ns,
            self.blocks_reused,
            self.crumb_every,
            self.lost_records,
            self.open_calls,
        )
        return header + b"".join(block.ljust(self._block_bytes, b"\0") for block in self._blocks)


def records_of(content: Journal) -> tuple[Record, ...]:
    """All records of a journal by time, also those that belong to no launch; of a damaged block those before."""
    found: list[Record] = []
    for place in content.places:
        block = content.block(place)
        with contextlib.suppress(struct.error, ValueError, IndexError):
            for offset, *_ in block.walk():
                with contextlib.suppress(KeyError):  # a layout, or of an unknown type
                    found.append(block.record(place + offset))
    return tuple(sorted(found, key=attrgetter("time_ns")))


def _number_bits(number: Number) -> int:
    if number.type in (CType.F32, CType.F64):
        return _bits(number.value, 0)
    return int(number.value) & (1 << 64) - 1


def _bits(value: float, integer: int) -> int:
    return int(value) & (1 << 64) - 1 if integer else struct.unpack("<Q", struct.pack("<d", value))[0]


def statistics(**fields: Any) -> Statistics:
    """Of finite numbers; `fields` says otherwise."""
    known: dict[str, Any] = {
        "numel": 512,
        "n_nan": 0,
        "n_pos_inf": 0,
        "n_neg_inf": 0,
        "n_zero": 0,
        "min": -1.5,
        "max": 2.25,
        "min_index": 3,
        "max_index": 7,
        "mean": 0.125,
        "std": 0.5,
    }
    return Statistics(**(known | fields))


def crumbs(*completed: int, every: int = 1, replays: int = 0) -> bytes:
    """crumbs.bin with one stream for each number; stream n has the handle 16 * n and so many replays."""
    header = abi.CRUMB_HEADER.codec.pack(abi.CRUMB_MAGIC, abi.CRUMB_VERSION, len(completed) + 1, every)
    used = b"".join(abi.CRUMB_SLOT.codec.pack(c, 1, 16 * index, replays) for index, c in enumerate(completed))
    return header + used + abi.CRUMB_SLOT.codec.pack(0, 0, 0, 0)


def run_info(**fields: Any) -> RunInfo:
    known: dict[str, Any] = {
        "tool_version": "0.1.0",
        "torch_version": "2.13.0",
        "pid": 4711,
        "started": "2026-11-20T23:15:01+00:00",
        "level": 3,
        "filters": (),
        "phase": "",
        "device": "cpu",
        "command": ("aoti-debug", "run", "m.pt2"),
        "host": "aoti-debug run",
        "exit": Exit(ExitKind.CLEAN),
    }
    return RunInfo(**(known | fields))


def in_home(base: Path) -> Path:
    """A folder that directories are made in; a home of results around it gets its marker."""
    if base.parent.name == results_home.HOME:
        results_home.mark(base.parent)
    return base


def run_directory(
    base: Path,
    package: Manifest,
    journal: JournalWriter | None = None,
    *,
    name: str = "20261120-231501-4711",
    crumbs: bytes | None = None,
    latest: bool = True,
    **fields: Any,
) -> Path:
    """Writes a run directory that counts as made here; `fields` are those of run.json."""
    path = in_home(base) / name
    path.mkdir(parents=True)
    info = run_info(**({"level": journal.level if journal else 0, "device": package.device} | fields))
    trust.remember_run(package, info.imports, info.libraries)
    run_json.write(info, path)
    (path / "manifest.json").write_text(package.json_text, encoding="utf-8")
    if journal is not None:
        (path / "journal.bin").write_bytes(journal.bytes())
    if crumbs is not None:
        (path / "crumbs.bin").write_bytes(crumbs)
    if latest:
        (base / "latest").unlink(missing_ok=True)
        (base / "latest").symlink_to(name)
    return path
