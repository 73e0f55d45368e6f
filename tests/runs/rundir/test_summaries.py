from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.package.manifest import Certainty, Provenance, Role
from aoti_debug.runs.rundir import summaries, summaries_file
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.summaries import HEADER, MAGIC, ROW, VERSION
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site

MODULES = Provenance(Certainty.EXACT, modules=("encoder.0", "encoder.1"))
PACKAGE = make_manifest(
    site("cpp_fused_0", arg("x"), arg("buf0", Role.OUT), provenance=MODULES), site("aoti_mm", arg("buf1", Role.OUT))
)
FLOAT32, INT64 = 6, 4


def row(
    call: int, launch: int, site_: int, slot: int, mean: float = 0.5, dtype: int = FLOAT32, replay: int = 0
) -> bytes:
    return ROW.codec.pack(call, replay, launch, site_, slot, dtype, 10, 1, 2, 0, 3, -1.0, 2.0, mean, 0.25)


ROWS = (
    row(0, 0, 0, 1),
    row(0, 1, 1, 0, dtype=INT64),
    row(0, 2, 1, 0, mean=9.0, dtype=INT64),  # in a loop
    row(2, 0, 0, 1, mean=math.nan),
    row(2, 1, 1, 0, dtype=INT64),
)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    journal = JournalWriter()
    journal.call_begin()
    return open_run(run_directory(tmp_path, PACKAGE, journal))


def write(run: RunDir, *rows: bytes, every: int = 2, version: int = VERSION, count: int | None = None) -> Path:
    header = HEADER.codec.pack(MAGIC, version, 1, every, len(rows) if count is None else count, 1000, 4, 5)
    path = run.path / summaries.NAME
    path.write_bytes(header + b"".join(rows))
    return path


@pytest.mark.parametrize("kept", [False, True])
def test_tensors_over_the_calls(run: RunDir, kept: bool) -> None:
    write(run, *ROWS)
    if kept:
        path = summaries.keep(run)
        assert path is not None
        assert not (run.path / summaries.NAME).exists()
        assert summaries.keep(run) is None
    found = summaries.read(run)
    assert found is not None
    assert (found.asked, found.every, found.lost, found.missed, found.calls) == (1, 2, 4, 5, 2)
    assert [(s.launch, s.argument, s.dtype, len(s.samples)) for s in found.series] == [
        (0, "buf0", "float32", 2),
        (1, "buf1", "int64", 2),
        (2, "buf1", "int64", 1),
    ]
    first = found.series[0]
    assert (first.kernel, first.modules, first.tag) == (
        "cpp_fused_0",
        ("encoder.0", "encoder.1"),
        "encoder.0, encoder.1",
    )
    assert found.series[1].tag == "aoti_mm"
    one, other = first.samples
    assert (one.call, one.numel, one.n_nan, one.n_pos_inf, one.n_neg_inf, one.n_zero) == (0, 10, 1, 2, 0, 3)
    assert (one.min, one.max, one.mean, one.std) == (-1.0, 2.0, 0.5, 0.25)
    assert (one.absmax, one.nonfinite, one.zeros) == (2.0, 0.3, 0.3)
    assert (other.call, math.isnan(other.mean)) == (2, True)


@pytest.mark.parametrize("kept", [False, True])
def test_replays_have_series_of_their_own(run: RunDir, kept: bool) -> None:
    replays = [row(1, launch, launch, 1 - launch, mean=r, replay=r) for r in (4, 2, 3) for launch in (0, 1)]
    write(run, *ROWS, *replays, row(3, 0, 0, 1, replay=2))
    if kept:
        summaries.keep(run)
    found = summaries.read(run)
    assert found is not None
    assert [(s.captured_call, s.place, s.argument, [x.number for x in s.samples]) for s in found.series] == [
        (None, "0", "buf0", [0, 2]),
        (None, "1", "buf1", [0, 2]),
        (None, "2", "buf1", [0]),
        (1, "1.0", "buf0", [2, 4]),
        (1, "1.1", "buf1", [2, 4]),
        (3, "3.0", "buf0", [2]),
    ]
    first = found.series[3]
    assert [(s.call, s.replay, s.mean) for s in first.samples] == [(1, 2, 2.0), (1, 4, 4.0)]
    assert found.series[0].samples[0].replay is None
    assert (first.unit, found.series[0].unit) == ("replay", "call")
    assert (found.calls, found.replays) == (2, {1: 2, 3: 1})


def test_rows_of_a_process_that_was_killed(run: RunDir) -> None:
    write(run, row(1, 0, 0, 1), *ROWS[:2], ROWS[0], b"\0" * 7, count=9)
    found = summaries.read(run)
    assert found is not None
    assert [len(s.samples) for s in found.series] == [1, 1]


def test_a_run_without_summaries(run: RunDir) -> None:
    assert summaries.read(run) is None
    assert summaries.keep(run) is None


def test_damaged_files(run: RunDir) -> None:
    path = write(run, row(0, 0, 7, 0))
    for content, message in (
        (path.read_bytes(), "names launch sites that the manifest lacks"),
        (b"short", "is truncated"),
        (write(run, version=9).read_bytes(), "has version 9"),
    ):
        path.write_bytes(content)
        with pytest.raises(RunDirError, match=message) as caught:
            summaries.read(run)
        assert caught.value.hint
    path.unlink()
    for content in (b"PK nonsense", b""):
        (run.path / summaries_file.NPZ).write_bytes(content)
        with pytest.raises(RunDirError, match="is damaged"):
            summaries.read(run)


def test_columns_that_do_not_fit(run: RunDir) -> None:
    import numpy as np

    write(run, *ROWS)
    path = summaries.keep(run)
    if path is None or path.suffix != ".npz":
        return  # Parquet has one length and one type for each column
    whole = dict(np.load(path))
    for name, column in (
        ("mean", whole["mean"][:-1]),
        ("series", whole["series"] + 7),
        ("min", np.array(["x"] * len(whole["min"]))),
        ("kernel", np.arange(len(whole["kernel"]))),
        ("call", whole["call"].reshape(1, -1)),
    ):
        np.savez(path, **{**whole, name: column})
        with pytest.raises(RunDirError, match="is damaged"):
            summaries.read(run)


def test_columns_of_an_earlier_version(run: RunDir) -> None:
    import numpy as np

    write(run, *ROWS)
    before = summaries.read(run)
    path = summaries.keep(run)
    assert before is not None
    assert path is not None
    if path.suffix == ".npz":
        columns = np.load(path)
        np.savez(path, **{name: columns[name] for name in columns if name not in ("replay", "missed")})
    else:
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        settings = {name: text for name, text in table.schema.metadata.items() if not name.endswith(b".missed")}
        pq.write_table(table.drop_columns(["replay"]).replace_schema_metadata(settings), path)
    assert repr(summaries.read(run)) == repr(replace(before, missed=0))


def test_parquet(run: RunDir) -> None:
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    write(run, *ROWS)
    before = summaries.read(run)
    path = summaries.keep(run)
    assert path is not None
    assert path.name == summaries_file.PARQUET
    assert repr(summaries.read(run)) == repr(before)
