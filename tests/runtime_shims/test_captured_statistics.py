"""Levels 2 and hash in calls that a CUDA graph captures: the run ends with what the last replay has measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.abi import NoteCode, Phase, StatsFlag
from tests.runtime_shims.journal_decoder import Journal, Record
from tests.runtime_shims.reference_hash import content_hash
from tests.runtime_shims.runtime_library import IN, INOUT, OUT, CValue, Handle, Runtime, Slot

Load = Callable[..., Runtime]
Decode = Callable[[], Journal]
BEFORE, AFTER = Phase.BEFORE.value, Phase.AFTER.value


def hash_of(tensor: torch.Tensor) -> int:
    return content_hash(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


class Model:
    """Two launches; each reads `x` and writes an output, and the second one changes `z` in place."""

    # The begin, before and after each launch one for what is measured, and the breadcrumb behind the last launch
    NODES = 6

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.x, self.first, self.second = torch.ones(3), torch.ones(2, 50), torch.ones(300)
        self.z = torch.ones(4)
        tensors = [Handle(tensor) for tensor in (self.x, self.first, self.second, self.z)]
        for tensor in tensors:
            runtime.lib.f_mark(tensor.pointer)
        x, first, second, z = (tensor.value for tensor in tensors)
        slots = (Slot("x", role=IN), Slot("y", role=OUT, value=1))
        one = runtime.site(0, "first", *slots)
        two = runtime.site(1, "second", *slots, Slot("z", role=INOUT, value=2))
        self._keep = tensors
        self.launches: tuple[tuple[Any, tuple[CValue, ...]], ...] = ((one, (x, first)), (two, (x, second, z)))

    def call(self, capturing: int) -> None:
        self.runtime.lib.f_set(b"capturing", capturing)
        with self.runtime.call():
            for site, values in self.launches:
                with self.runtime.launch(site, *values):
                    pass
        self.runtime.lib.f_set(b"capturing", 0)

    def replay(self, nodes: int = NODES) -> None:
        self.runtime.lib.f_set(b"replay", nodes)


@pytest.fixture
def captured(load: Load, device_library: Path) -> Callable[..., Model]:
    """A model that was called once, and captured once."""

    def capture(level: int | str, **settings: str) -> Model:
        model = Model(load(device_library, LEVEL=level, **settings))
        model.call(0)
        model.call(1)
        return model

    return capture


def rows(found: Journal) -> list[tuple[int, int, int, int, int]]:
    return [(r.call, r.launch, r.slot, r.phase, r.replay) for r in found.of("replay_stats")]


def only(found: Journal, launch: int, slot: int, phase: int) -> Record:
    (record,) = (r for r in found.of("replay_stats") if (r.launch, r.slot, r.phase) == (launch, slot, phase))
    return record


def notes(found: Journal) -> list[str]:
    return [r.text for r in found.of("note") if r.code == NoteCode.CAPTURING]


ROWS = [(0, 0, BEFORE), (0, 1, AFTER), (1, 0, BEFORE), (1, 2, BEFORE), (1, 1, AFTER), (1, 2, AFTER)]


def test_the_statistics_of_the_last_replay_are_recorded(
    captured: Callable[..., Model], journal: Decode, capfd: pytest.CaptureFixture[str]
) -> None:
    model = captured(2)
    model.replay()
    model.first[1, 4] = math.nan
    model.second[7] = -3.5
    model.z[2] = 9.0
    for _ in range(4):
        model.replay()
    model.runtime.unload()
    found = journal()
    assert rows(found) == [(1, *row, 5) for row in ROWS]
    assert {r.begun for r in found.of("replay_stats")} == {5}
    first = only(found, 0, 1, AFTER)
    assert (first.n_nan, first.numel, first.max_bits, first.tail) == (1, 100, first.min_bits, b"")
    assert only(found, 1, 1, AFTER).min_index == 7
    z = only(found, 1, 2, AFTER)
    assert z.tail == model.z.numpy().tobytes()
    assert z.hash == hash_of(model.z)
    assert {r.call for r in found.of("tensor_stats")} == {0}
    assert [(r.call, r.level) for r in found.of("call_begin")] == [(0, 2), (1, 2)]
    (note,) = notes(found)
    assert note.endswith("of its last replay are recorded when the run ends, those of earlier replays are not kept")
    assert capfd.readouterr().err.count("those of earlier replays are not kept") == 1


def test_at_level_hash_it_is_the_hashes(
    captured: Callable[..., Model], journal: Decode, capfd: pytest.CaptureFixture[str]
) -> None:
    model = captured("hash")
    model.second[3] = 8.0
    model.replay()
    model.runtime.unload()
    found = journal()
    assert rows(found) == [(1, *row, 1) for row in ROWS]
    assert {r.flags for r in found.of("replay_stats")} == {StatsFlag.HASH_ONLY}
    assert only(found, 1, 1, AFTER).hash == hash_of(model.second)
    assert [r.level for r in found.of("call_begin")] == [4, 4]
    assert "the hashes of its last replay" in capfd.readouterr().err


def test_a_replay_that_did_not_end_leaves_what_the_one_before_has_measured(
    captured: Callable[..., Model], journal: Decode
) -> None:
    model = captured(2)
    model.replay()
    model.first[0, 0] = 5.0
    model.second[0] = 5.0
    model.replay(3)  # the begin and the first launch
    model.runtime.unload()
    found = journal()
    assert [row[-1] for row in rows(found)] == [2, 2, 1, 1, 1, 1]
    assert {r.begun for r in found.of("replay_stats")} == {2}
    assert only(found, 0, 1, AFTER).max_index == 0
    assert only(found, 0, 1, AFTER).max_bits != only(found, 1, 1, AFTER).max_bits
    assert notes(found)[1] == (
        "replay 2 of the CUDA graph that captured call 1 had not measured every tensor when the run ended: "
        "the statistics of 4 are those of an earlier one"
    )


def test_the_first_replay_did_not_end(captured: Callable[..., Model], journal: Decode) -> None:
    model = captured(2)
    model.replay(3)
    model.runtime.unload()
    found = journal()
    assert [row[-1] for row in rows(found)] == [1] * 6
    unread = [r for r in found.of("replay_stats") if r.flags == StatsFlag.SKIPPED]
    assert [(r.launch, r.tail) for r in unread] == [(1, b"not read: no replay has measured it")] * 4


def test_what_a_replay_was_storing_is_not_read(captured: Callable[..., Model], journal: Decode) -> None:
    model = captured(2)
    model.replay()
    model.runtime.lib.f_set(b"tears", 1)
    model.replay(2)
    model.runtime.unload()
    (torn,) = (r for r in journal().of("replay_stats") if r.flags == StatsFlag.SKIPPED)
    assert (torn.launch, torn.slot, torn.replay) == (0, 0, 2)
    assert torn.tail == b"not read: a replay was being measured when the run ended"


def test_without_a_replay_there_is_nothing(captured: Callable[..., Model], journal: Decode) -> None:
    model = captured(2)
    model.call(1)
    model.runtime.unload()
    found = journal()
    assert rows(found) == []
    assert notes(found)[1:] == ["no replay of a CUDA graph has measured the tensors of calls 1, 2"]


def test_statistics_are_recorded_when_the_last_model_is_gone(captured: Callable[..., Model], journal: Decode) -> None:
    model = captured(2)
    model.replay()
    model.runtime.lib.h_containers(1)
    model.runtime.lib.h_containers(-1)
    model.replay()
    found = journal()
    assert rows(found) == [(1, *row, 1) for row in ROWS]
    model.runtime.unload()
    assert rows(journal()) == [(1, *row, 1) for row in ROWS]


def test_launches_that_are_not_chosen_are_not_measured(captured: Callable[..., Model], journal: Decode) -> None:
    model = captured(2, FILTER="second")
    model.replay(4)
    model.runtime.unload()
    assert {row[1] for row in rows(journal())} == {1}


def test_tensors_that_no_replay_can_read(load: Load, device_library: Path, journal: Decode) -> None:
    runtime = load(device_library, LEVEL=2, PHASE="both")
    site = runtime.site(0, "k", Slot("host", role=IN), Slot("y", role=OUT, value=1))
    host, y = Handle(torch.ones(2)), Handle(torch.ones(2))
    runtime.lib.f_mark(y.pointer)
    for capturing in (0, 1):
        runtime.lib.f_set(b"capturing", capturing)
        with runtime.call(), runtime.launch(site, host.value, y.value):
            pass
    runtime.lib.f_set(b"capturing", 0)
    runtime.lib.f_set(b"replay", 2)
    runtime.unload()
    found = [(r.slot, r.phase, r.flags) for r in journal().of("replay_stats")]
    assert found == [
        (0, BEFORE, StatsFlag.SKIPPED),
        (1, BEFORE, StatsFlag.UNINITIALISED),
        (0, AFTER, StatsFlag.SKIPPED),
        (1, AFTER, 0),
    ]


def test_a_graph_that_takes_no_nodes_is_said(load: Load, device_library: Path, journal: Decode) -> None:
    model = Model(load(device_library, LEVEL=2))
    model.call(0)
    model.runtime.lib.f_set(b"no graph nodes", 1)
    model.call(1)
    model.runtime.unload()
    found = journal()
    assert rows(found) == []
    assert notes(found) == ["a CUDA graph is being captured: it keeps no statistics of tensors"]
    assert [r.level for r in found.of("call_begin")] == [2, 3]


def test_level_1_saves_nothing(captured: Callable[..., Model], journal: Decode) -> None:
    model = captured(1)
    model.runtime.unload()
    found = journal()
    assert notes(found) == ["a CUDA graph is being captured: tensors are not saved"]
    assert {r.call for r in found.of("tensor_file")} == {0}
    assert [r.level for r in found.of("call_begin")] == [1, 3]


def test_watchpoints_and_statistics_share_a_graph(captured: Callable[..., Model], journal: Decode) -> None:
    model = captured(2, WATCH="z: max > 5")
    model.z[1] = 6.0
    model.replay(8)  # two more: the statistics and the condition of `z`
    model.runtime.unload()
    found = journal()
    assert [(r.launch, r.replay) for r in found.of("watch_hit")] == [(1, 1)]
    assert rows(found) == [(1, *row, 1) for row in ROWS]


def test_tensors_beyond_the_limit_are_not_measured(
    load: Load, device_library: Path, journal: Decode, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load(device_library, LEVEL="hash")
    handles = [Handle(torch.ones(1)) for _ in range(128)]
    for handle in handles:
        runtime.lib.f_mark(handle.pointer)
    site = runtime.site(0, "k", *(Slot(f"x{i}", role=IN, value=i) for i in range(128)))
    values = [handle.value for handle in handles]
    for capturing, launches in ((0, 1), (1, 513)):
        runtime.lib.f_set(b"capturing", capturing)
        with runtime.call():
            for _ in range(launches):
                with runtime.launch(site, *values):
                    pass
    runtime.lib.f_set(b"capturing", 0)
    runtime.lib.f_set(b"replay", 2)
    runtime.unload()
    found = journal()
    assert len(found.of("replay_stats")) == 512 * 128
    assert {r.launch for r in found.of("replay_stats")} == set(range(512))
    assert (
        capfd.readouterr().err.count("CUDA graphs measure no further tensors in their replays: they measure 65536") == 1
    )


def test_captured_calls_beyond_the_limit_are_said(
    load: Load, device_library: Path, journal: Decode, capfd: pytest.CaptureFixture[str]
) -> None:
    model = Model(load(device_library, LEVEL=2))
    model.call(0)
    for _ in range(514):
        model.call(1)
    model.runtime.unload()
    found = journal()
    assert [r.level for r in found.of("call_begin")] == [2] * 513 + [3] * 2
    text = "no breadcrumbs, no statistics of tensors in further CUDA graphs: too many calls of this run were captured"
    assert [r.text for r in found.of("note") if r.code == NoteCode.CRUMBS_OFF] == [text]
    assert capfd.readouterr().err.count(text) == 1
