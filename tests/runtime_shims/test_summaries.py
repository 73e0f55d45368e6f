"""Summaries: statistics of what launches write, of some calls, in bounded room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.runs.rundir.summaries import HEADER, ROW
from tests.runtime_shims import journal_decoder
from tests.runtime_shims.runtime_library import IN, INOUT, OUT, TENSOR, Handle, Runtime, Slot

Load = Callable[..., Runtime]
NAMES = [name for name, _ in ROW.fields if name != "reserved"]


def run(runtime: Runtime, calls: int, *tensors: torch.Tensor, site: int = 3) -> None:
    """Calls of one launch, which reads the first tensor and writes the others."""
    slots = [Slot(f"t{n}", TENSOR, (IN, OUT, INOUT)[min(n, 2)], n) for n in range(len(tensors))]
    runtime.site(site, "k", *slots)
    handles = [Handle(tensor) for tensor in tensors]
    for _ in range(calls):
        with runtime.call(), runtime.launch(site, *(handle.value for handle in handles)):
            pass


def rows(folder: Path) -> tuple[tuple[Any, ...], list[dict[str, Any]]]:
    (path,) = folder.rglob("summaries.bin")
    data = path.read_bytes()
    found = [dict(zip(NAMES, row, strict=True)) for row in ROW.codec.iter_unpack(data[HEADER.size :])]
    return HEADER.codec.unpack_from(data), found


def test_what_is_written_of_some_calls(load: Load, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runtime = load(RUN=None, DIR=tmp_path, SUMMARIES=3, PRINT="none")
    written = torch.tensor([0.0, -2.0, 6.0, float("nan"), float("inf")], dtype=torch.float64)
    run(runtime, 8, torch.ones(2), written, torch.arange(4))
    header, found = rows(tmp_path)
    assert header[2:5] == (3, 3, 6)
    assert [(row["call"], row["launch"], row["site"], row["slot"]) for row in found] == [
        (call, 0, 3, slot) for call in (0, 3, 6) for slot in (1, 2)
    ]
    first = found[0]
    assert [first[name] for name in ("dtype", *NAMES[NAMES.index("numel") :])] == [
        7,
        5,
        1,
        1,
        0,
        1,
        -2.0,
        6.0,
        pytest.approx(4 / 3),
        pytest.approx((104 / 9) ** 0.5),
    ]
    assert (found[1]["min"], found[1]["max"], found[1]["mean"]) == (0, 3, 1.5)
    runtime.unload()
    assert capfd.readouterr().err == ""
    (journal,) = tmp_path.rglob("journal.bin")
    assert journal_decoder.decode(journal).of("tensor_stats") == []


@pytest.mark.parametrize("level", [1, 2])
def test_beside_other_levels(load: Load, tmp_path: Path, level: int) -> None:
    runtime = load(RUN=None, DIR=tmp_path, SUMMARIES=1, LEVEL=level, PRINT="none")
    run(runtime, 2, torch.ones(2), torch.ones(3))
    runtime.unload()
    assert [(row["call"], row["numel"]) for row in rows(tmp_path)[1]] == [(0, 3), (1, 3)]


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_device_measures_in_the_order_of_its_stream(
    load: Load, device_library: Path, tmp_path: Path, level: int
) -> None:
    runtime = load(device_library, RUN=None, DIR=tmp_path, SUMMARIES=2, LEVEL=level, PRINT="none")
    written = torch.ones(3)
    handle = Handle(written)
    runtime.lib.f_mark(handle.pointer)
    site = runtime.site(0, "k", Slot("x", role=OUT))
    for call in range(3):
        with runtime.call(stream=0x10):
            for launch in range(2):
                with runtime.launch(site, handle.value):
                    written.fill_(call + launch)
    runtime.unload()
    found = rows(tmp_path)[1]
    assert [(row["call"], row["launch"], row["numel"]) for row in found] == [(0, 0, 3), (0, 1, 3), (2, 0, 3), (2, 1, 3)]


def test_filters_narrow_it_down(load: Load, tmp_path: Path) -> None:
    runtime = load(RUN=None, DIR=tmp_path, SUMMARIES=1, FILTER="other", PRINT="none")
    run(runtime, 2, torch.ones(2), torch.ones(3))
    runtime.unload()
    assert rows(tmp_path)[1] == []


def test_it_is_thinned_out_when_it_has_no_room(load: Load, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runtime = load(RUN=None, DIR=tmp_path, SUMMARIES=2, SUMMARIES_BYTES=20 * ROW.size, PRINT="none")
    run(runtime, 200, torch.ones(2), torch.ones(3))
    runtime.unload()
    header, found = rows(tmp_path)
    assert header[2:4] == (2, 16)
    assert [row["call"] for row in found] == list(range(0, 200, 16))
    assert header[4:7] == (len(found), 20, 0)
    notes = [line for line in capfd.readouterr().err.splitlines() if "summaries" in line]
    assert notes == [f"aoti-debug: summaries fill their room: now of one call, or replay, in {n}" for n in (4, 8, 16)]


def test_a_call_that_has_no_room_is_cut(load: Load, tmp_path: Path) -> None:
    runtime = load(RUN=None, DIR=tmp_path, SUMMARIES=1, SUMMARIES_BYTES=2 * ROW.size, PRINT="none")
    run(runtime, 3, *(torch.ones(2) for _ in range(5)))
    runtime.unload()
    header, found = rows(tmp_path)
    assert {row["call"] for row in found} == {0}
    assert len(found) == 2
    assert header[6] >= 2


def test_a_tensor_without_finite_elements(load: Load, tmp_path: Path) -> None:
    runtime = load(RUN=None, DIR=tmp_path, SUMMARIES=1, PRINT="none")
    run(runtime, 1, torch.ones(2), torch.full((3,), float("nan")))
    runtime.unload()
    (row,) = rows(tmp_path)[1]
    assert row["n_nan"] == 3
    assert all(row[name] != row[name] for name in ("min", "max", "mean", "std"))


def test_it_is_off_by_default_and_at_0(load: Load, tmp_path: Path) -> None:
    for number, variables in enumerate(({}, {"SUMMARIES": 0})):
        runtime = load(RUN=None, DIR=tmp_path / str(number), PRINT="none", **variables)
        run(runtime, 1, torch.ones(2), torch.ones(3))
        runtime.unload()
    assert list(tmp_path.rglob("summaries.bin")) == []
