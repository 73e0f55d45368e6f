"""The oracle of races: it knows those that were worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.quality import stream_emulation
from tests.instrument.wrapper import planted_races
from tests.instrument.wrapper.planted_races import NAMES, Planted, clean

PLANTED = tuple(planted_races.planted())


def _by_emulation(text: str) -> set[tuple[str, str]]:
    program = stream_emulation.read(text)
    names = {launch.line: launch.name for launch in program.launches}
    found = stream_emulation.races(program)
    return {(_kernel(names[first]), _kernel(names[second])) for first, second in found}


def _kernel(callee: str) -> str:
    return callee.removeprefix("call_")


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"{planted.wrapper}: no {planted.lacks}")
def test_the_races_that_were_worked_out_by_hand(planted: Planted) -> None:
    assert _by_emulation(planted.text) == {(first, second) for first, second, _ in planted.pairs}


@pytest.mark.parametrize("name", NAMES)
def test_wrappers_without_a_race(name: str) -> None:
    assert _by_emulation(clean(name)) == set()


def test_outputs_change_where_there_is_a_race() -> None:
    planted = next(each for each in PLANTED if each.wrapper == "fork_join" and "wait for event 3" in each.lacks)
    assert stream_emulation.outputs_change(stream_emulation.read(planted.text), seed=1, orders=20)
    assert not stream_emulation.outputs_change(stream_emulation.read(clean("fork_join")), seed=1, orders=20)


def test_a_statement_of_another_form() -> None:
    text = clean("fork_join").replace("cudaEventRecord(", "cudaEventRecordWithFlags(", 1)
    with pytest.raises(stream_emulation.NotEmulatedError, match="cudaEventRecordWithFlags"):
        stream_emulation.read(text)


def test_each_statement_is_left_out_once() -> None:
    names = [what for what, _ in stream_emulation.mutants(clean("fork_join"))]
    assert sum(name.startswith("no record") for name in names) == 2
    assert sum(name.startswith("no wait") for name in names) == 2
