"""Summaries of a run: statistics of what launches wrote, over many calls of the model, or replays of a CUDA graph.

The runtime writes rows to summaries.bin, whose structs tests/base/test_abi.py compares with
runtime_shims/formats/summaries_format.h. `keep` turns them into one columnar file, summaries.parquet or summaries.npz
(docs/summaries.md).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from aoti_debug.base import dtypes
from aoti_debug.base.abi import Struct
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import untrusted_files
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.rundir import summaries_file
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.summaries_file import Columns

MAGIC = b"AOTIDBU1"
VERSION = 2

HEADER = Struct(
    "SummariesHeader",
    "magic:8s version:I asked:I every:Q n_rows:Q most_rows:Q n_lost:Q n_missed:Q reserved:Q",
)
ROW = Struct(
    "SummaryRow",
    "call:I replay:I launch:I site:I slot:H dtype:h reserved:I numel:Q n_nan:Q n_pos_inf:Q n_neg_inf:Q n_zero:Q "
    "min:d max:d mean:d std:d",
)
STRUCTS = (HEADER, ROW)

NAME = "summaries.bin"
FILES = (NAME, summaries_file.NPZ, summaries_file.PARQUET)
_LARGEST = 1 << 30  # bytes


@dataclass(frozen=True)
class CallSample:
    """The statistics of a tensor in one call; min, max, mean and std are over its finite elements, NaN without any.

    Attributes:
        call: its number; of a replay, the number of the call that the CUDA graph captured.
        replay: its number, from 1; None for a call.
    """

    call: int
    replay: int | None
    numel: int
    n_nan: int
    n_pos_inf: int
    n_neg_inf: int
    n_zero: int
    min: float
    max: float
    mean: float
    std: float

    @property
    def number(self) -> int:
        """The number of the replay or, without one, of the call."""
        return self.call if self.replay is None else self.replay

    @property
    def absmax(self) -> float:
        """The largest magnitude; NaN without finite elements."""
        return max(abs(self.min), abs(self.max))

    @property
    def rms(self) -> float:
        """The root of the mean square: a typical magnitude."""
        return math.hypot(self.mean, self.std)

    @property
    def nonfinite(self) -> float:
        """The share of NaN and infinities, 0 to 1."""
        return (self.n_nan + self.n_pos_inf + self.n_neg_inf) / self.numel if self.numel else 0.0

    @property
    def zeros(self) -> float:
        """The share of zeros, 0 to 1."""
        return self.n_zero / self.numel if self.numel else 0.0


@dataclass(frozen=True)
class Series:
    """One tensor over the calls, or over the replays of one CUDA graph.

    Attributes:
        launch: number of its launch within the first call that it is in.
        site: of the launch, in the manifest.
        kernel, argument: "cpp_fused_relu_1", "buf4".
        modules: paths of the modules that the launch belongs to; () if they are not known.
        dtype: "float32".
        captured_call: the call that the CUDA graph captured; None without one.
    """

    launch: int
    site: int
    kernel: str
    argument: str
    modules: tuple[str, ...]
    dtype: str
    samples: tuple[CallSample, ...]
    captured_call: int | None = None

    @property
    def place(self) -> str:
        """The launch, for tables: "3" of every call, "1.3" of the call that a CUDA graph captured."""
        return str(self.launch) if self.captured_call is None else f"{self.captured_call}.{self.launch}"

    @property
    def unit(self) -> str:
        """The kind of its samples: "call" or "replay"."""
        return "call" if self.captured_call is None else "replay"

    @property
    def is_floating(self) -> bool:
        """True for real floating-point numbers."""
        dtype = dtypes.of_name(self.dtype)
        return dtype is not None and dtype.category is dtypes.Category.FLOATING

    @property
    def tag(self) -> str:
        """The innermost modules, or the kernel if they are not known."""
        return ", ".join(self.modules) or self.kernel


@dataclass(frozen=True)
class Summaries:
    """The summaries of a run.

    Attributes:
        asked: every how many calls, or replays, were asked for.
        every: every how many were kept in the end: more, if the file had no room.
        lost: rows that there was no room for.
        missed: rows of replays that later ones had written over before they were read.
    """

    series: tuple[Series, ...]
    asked: int
    every: int
    lost: int
    missed: int = 0

    @property
    def calls(self) -> int:
        """The number of summarised calls."""
        ordinary = (series for series in self.series if series.captured_call is None)
        return len({sample.call for series in ordinary for sample in series.samples})

    @property
    def replays(self) -> dict[int, int]:
        """The number of summarised replays, by the call that their CUDA graph captured."""
        found: dict[int, set[int]] = defaultdict(set)
        for series in self.series:
            if series.captured_call is not None:
                found[series.captured_call].update(sample.number for sample in series.samples)
        return {call: len(replays) for call, replays in sorted(found.items())}


def read(run: RunDir) -> Summaries | None:
    """Reads the summaries of a run; None if it has none.

    Raises:
        RunDirError: they are damaged, or pyarrow is needed and missing.
    """
    data = _content(run.path)
    columns = summaries_file.read(run.path) if data is None else _columns(run.path / NAME, data, run.manifest)
    return None if columns is None else _assembled(columns)


def keep(run: RunDir) -> Path | None:
    """Turns the rows of a run that has ended into one columnar file, and removes them; None if there are none.

    Raises:
        RunDirError: they are damaged, or the file cannot be written.
    """
    data = _content(run.path)
    if data is None:
        return None
    path = summaries_file.write(run.path, _columns(run.path / NAME, data, run.manifest))
    (run.path / NAME).unlink()
    return path


def _content(run: Path) -> bytes | None:
    try:
        return untrusted_files.read_bytes(run, NAME, _LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunDirError(f"cannot read {run / NAME}: {error.strerror}") from error


def _columns(path: Path, data: bytes, manifest: Manifest) -> Columns:
    """The rows of summaries.bin as columns."""
    asked, every, n_rows, _, n_lost, n_missed = HEADER.read_header(path, data, MAGIC, VERSION)
    end = HEADER.size + min(n_rows, (len(data) - HEADER.size) // ROW.size) * ROW.size
    rows = (row for row in ROW.codec.iter_unpack(data[HEADER.size : end]) if (row[1] or row[0]) % max(every, 1) == 0)
    unique = {row[:5]: row for row in rows}  # a process that was killed while it thinned them out left some twice
    columns = Columns(asked=asked, every=every, lost=n_lost, missed=n_missed)
    seen: Counter[tuple[int, int, int, int]] = Counter()
    for row in sorted(unique.values(), key=lambda row: row[:5]):
        call, replay, launch, site_id, slot, dtype, *numbers = row
        site = manifest.sites[site_id] if site_id < len(manifest.sites) else None
        if site is None or slot >= len(site.args):
            raise RunDirError(f"{path} names launch sites that the manifest lacks", hint="run the package again")
        repeated = seen[call, replay, site_id, slot]  # a loop runs a site several times
        seen[call, replay, site_id, slot] += 1
        columns.add(
            (call, replay, launch, site_id, repeated, *numbers),
            (site.kernel, site.args[slot].name, ", ".join(site.provenance.modules), dtypes.name_of_number(dtype)),
        )
    return columns


def _assembled(columns: Columns) -> Summaries:
    grouped: dict[tuple[int | None, int, int, tuple[str, ...]], list[tuple[int, CallSample]]] = {}
    for numbers, texts in columns.rows():
        call, replay, launch, site, repeated, *rest = numbers
        counts, floats = map(int, rest[:5]), map(float, rest[5:])
        sample = CallSample(int(call), int(replay) or None, *counts, *floats)
        captured = int(call) if replay else None
        grouped.setdefault((captured, int(site), int(repeated), texts), []).append((int(launch), sample))
    series = tuple(_series(captured, site, texts, items) for (captured, site, _, texts), items in grouped.items())
    ordered = tuple(
        sorted(series, key=lambda one: (-1 if one.captured_call is None else one.captured_call, one.launch, one.site))
    )
    return Summaries(ordered, columns.asked, columns.every, columns.lost, columns.missed)


def _series(captured: int | None, site: int, texts: tuple[str, ...], items: Iterable[tuple[int, CallSample]]) -> Series:
    ordered = sorted(items, key=lambda item: item[1].number)
    kernel, argument, modules, dtype = texts
    return Series(
        launch=ordered[0][0],
        site=site,
        kernel=kernel,
        argument=argument,
        modules=tuple(modules.split(", ")) if modules else (),
        dtype=dtype,
        samples=tuple(sample for _, sample in ordered),
        captured_call=captured,
    )


def finite(values: Iterable[float]) -> Iterator[float]:
    """Yields the values that are finite."""
    return (value for value in values if math.isfinite(value))
