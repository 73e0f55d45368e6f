"""Summaries of calls that a CUDA graph captures: a row of every replay."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.abi import NoteCode
from aoti_debug.runs.rundir.summaries import HEADER, ROW
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import IN, INOUT, OUT, Handle, Runtime, Slot

Load = Callable[..., Runtime]
Decode = Callable[[], Journal]
NAMES = [name for name, _ in ROW.fields if name != "reserved"]
N_LOST, N_MISSED = 6, 7  # of the header
KEPT = 16384  # replays, of one launch site


class Model:
    """Two launches: one writes `y`, the other one reads `y` and changes `z` in place."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.y, self.z = torch.ones(100), torch.ones(3)
        self._handles = [Handle(tensor) for tensor in (self.y, self.z)]
        for handle in self._handles:
            runtime.lib.f_mark(handle.pointer)
        self._one = runtime.site(0, "one", Slot("y", role=OUT))
        self._two = runtime.site(1, "two", Slot("y", role=IN), Slot("z", role=INOUT, value=1))

    def call(self, capturing: int) -> None:
        y, z = (handle.value for handle in self._handles)
        self.runtime.lib.f_set(b"capturing", capturing)
        with self.runtime.call():
            with self.runtime.launch(self._one, y):
                pass
            with self.runtime.launch(self._two, y, z):
                pass
        self.runtime.lib.f_set(b"capturing", 0)

    def replay(self, nodes: int = 4) -> None:
        """All there is: the begin, what is measured after each launch, and the breadcrumb."""
        self.runtime.lib.f_set(b"replay", nodes)


@pytest.fixture
def captured(load: Load, device_library: Path) -> Callable[..., Model]:
    """A model that was called once, and captured once."""

    def capture(**settings: object) -> Model:
        model = Model(load(device_library, **{"SUMMARIES": 1, "LEVEL": 3, "PRINT": "none", **settings}))
        model.call(0)
        model.call(1)
        return model

    return capture


def rows(folder: Path) -> tuple[tuple[Any, ...], list[dict[str, Any]]]:
    (path,) = folder.rglob("summaries.bin")
    data = path.read_bytes()
    header = HEADER.codec.unpack_from(data)
    end = HEADER.size + header[4] * ROW.size
    return header, [dict(zip(NAMES, row, strict=True)) for row in ROW.codec.iter_unpack(data[HEADER.size : end])]


def places(found: list[dict[str, Any]]) -> list[tuple[int, int, int, int]]:
    return [(row["call"], row["replay"], row["launch"], row["slot"]) for row in found]


def of_replays(numbers: range) -> list[tuple[int, int, int, int]]:
    return [(1, replay, *place) for replay in numbers for place in ((0, 0), (1, 1))]


OF_CALL = [(0, 0, 0, 0), (0, 0, 1, 1)]


def test_every_replay_leaves_its_rows(captured: Callable[..., Model], journal: Decode, tmp_path: Path) -> None:
    model = captured()
    for replay in range(1, 6):
        model.y.fill_(replay)
        model.y[3] = -replay
        model.z[2] = float("nan") if replay == 4 else 7 * replay
        model.replay()
    model.runtime.unload()
    found = rows(tmp_path)[1]
    assert places(found) == OF_CALL + of_replays(range(1, 6))
    y, z = found[2::2], found[3::2]
    assert [(row["min"], row["max"], row["numel"]) for row in y] == [(-r, r, 100) for r in range(1, 6)]
    assert [row["max"] for row in z] == [7, 14, 21, 1, 35]
    assert [row["n_nan"] for row in z] == [0, 0, 0, 1, 0]
    assert [row["mean"] for row in y] == pytest.approx([0.98 * replay for replay in range(1, 6)])
    recorded = journal()
    assert recorded.of("replay_stats") == []
    assert [note.text for note in recorded.of("note")] == []


def test_replays_are_read_while_they_run(captured: Callable[..., Model], tmp_path: Path) -> None:
    model = captured()
    model.replay()
    deadline = time.monotonic() + 60
    while len(rows(tmp_path)[1]) < 4 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert places(rows(tmp_path)[1]) == OF_CALL + of_replays(range(1, 2))


def test_one_replay_in_some(captured: Callable[..., Model], tmp_path: Path) -> None:
    model = captured(SUMMARIES=3)
    for _ in range(8):
        model.replay()
    model.runtime.unload()
    assert places(rows(tmp_path)[1]) == OF_CALL + of_replays(range(3, 8, 3))


def test_rows_of_replays_are_thinned_out_too(
    captured: Callable[..., Model], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = captured(SUMMARIES_BYTES=20 * ROW.size)
    for _ in range(100):
        model.replay()
    model.runtime.unload()
    header, found = rows(tmp_path)
    every = header[3]
    assert every in (16, 32)  # the file is read in parts, at any time
    assert places(found) == OF_CALL + of_replays(range(every, 101, every))
    assert header[5] == 20
    assert f"now of one call, or replay, in {every}\n" in capfd.readouterr().err


@pytest.mark.parametrize("level", [1, 2, "hash"])
def test_beside_other_levels(captured: Callable[..., Model], journal: Decode, tmp_path: Path, level: int | str) -> None:
    model = captured(LEVEL=level)
    for replay in range(1, 4):
        model.z[0] = replay
        model.replay(4 if level == 1 else 5)  # the other ones measure what the second launch reads
    model.runtime.unload()
    found = rows(tmp_path)[1]
    assert places(found) == OF_CALL + of_replays(range(1, 4))
    assert [row["max"] for row in found[3::2]] == [1, 2, 3]
    recorded = journal().of("replay_stats")
    assert {record.replay for record in recorded} == (set() if level == 1 else {3})


def test_what_was_not_read_in_time_is_counted(captured: Callable[..., Model], journal: Decode, tmp_path: Path) -> None:
    model = captured(FILTER="two")
    model.runtime.lib.f_set(b"passed replays", 20000)
    model.replay(3)
    model.runtime.unload()
    header, found = rows(tmp_path)
    missed = 20001 - KEPT
    assert (header[N_LOST], header[N_MISSED]) == (0, missed)
    assert [row["replay"] for row in found[1:]] == list(range(missed + 1, 20002))
    assert [note.text for note in journal().of("note")] == [
        f"replays of CUDA graphs followed one another faster than they could be read: the summaries lack {missed} rows"
    ]


def test_a_replay_that_did_not_end_leaves_what_it_has(captured: Callable[..., Model], tmp_path: Path) -> None:
    model = captured()
    model.replay()
    model.replay(2)  # the begin and the first launch
    model.runtime.unload()
    assert places(rows(tmp_path)[1]) == [*OF_CALL, *of_replays(range(1, 2)), (1, 2, 0, 0)]


def test_launches_that_are_not_chosen_are_not_measured(captured: Callable[..., Model], tmp_path: Path) -> None:
    model = captured(FILTER="two")
    model.replay(3)
    model.runtime.unload()
    assert places(rows(tmp_path)[1]) == [(0, 0, 1, 1), (1, 1, 1, 1)]


def test_without_breadcrumbs_nothing_is_measured(
    load: Load, device_library: Path, journal: Decode, tmp_path: Path
) -> None:
    model = Model(load(device_library, SUMMARIES=1, LEVEL=3, PRINT="none"))
    model.call(1)
    model.runtime.unload()
    assert rows(tmp_path)[1] == []
    (note,) = (note.text for note in journal().of("note") if note.code == NoteCode.CRUMBS_OFF)
    assert note == (
        "no breadcrumbs, no summaries in a CUDA graph: the model was not called once, outside of a capture, before"
    )


def test_a_graph_that_takes_no_nodes_is_said(load: Load, device_library: Path, journal: Decode, tmp_path: Path) -> None:
    model = Model(load(device_library, SUMMARIES=1, LEVEL=3, PRINT="none"))
    model.call(0)
    model.runtime.lib.f_set(b"no graph nodes", 1)
    model.call(1)
    model.runtime.unload()
    assert places(rows(tmp_path)[1]) == OF_CALL
    assert [note.text for note in journal().of("note")] == [
        "no summaries of replays of a CUDA graph: the device could not add to it"
    ]


def test_several_calls_have_rows_of_their_own(captured: Callable[..., Model], tmp_path: Path) -> None:
    model = captured()
    model.call(1)
    model.replay(8)  # of both
    model.runtime.unload()
    assert sorted(places(rows(tmp_path)[1])) == [*OF_CALL, *of_replays(range(1, 2)), (2, 1, 0, 0), (2, 1, 1, 1)]


def test_many_captured_calls_share_what_there_is(
    load: Load, device_library: Path, journal: Decode, tmp_path: Path
) -> None:
    model = Model(load(device_library, SUMMARIES=1, LEVEL=3, PRINT="none"))
    model.call(0)
    for _ in range(512):
        model.call(1)
    model.replay(4 * 512)
    model.runtime.unload()
    found = rows(tmp_path)[1]
    assert {row["call"] for row in found} == set(range(513))
    assert journal().of("note") == []
