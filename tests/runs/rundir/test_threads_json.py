from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.abi import CallKind
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.machine.files import json_data
from aoti_debug.runs.rundir import threads_json
from aoti_debug.runs.rundir.launch import ModelCall
from aoti_debug.runs.rundir.threads_json import CallState, Jitter, OutputElement, ThreadCall, ThreadsRecord, deal
from tests.wrong_types import assert_refused

ELEMENT = OutputElement(output=0, index=(1, 2), values=("1.5", "2.5"), different=3, elements=8)
RECORD = ThreadsRecord(
    threads=(70, 71),
    runners=2,
    sets=2,
    calls=(
        ThreadCall(thread=0, inputs=0, state=CallState.EQUAL),
        ThreadCall(thread=1, inputs=1, state=CallState.DIFFERS, element=ELEMENT),
        ThreadCall(thread=0, inputs=1, state=CallState.RAISED),
        ThreadCall(thread=1, inputs=0),
    ),
    updates=3,
)


def call(number: int, thread: int, kind: CallKind = CallKind.MODEL) -> ModelCall:
    return ModelCall(kind, number, thread, 3, False, 0, 0, True, False, 0, 1, None)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    threads_json.write(RECORD, tmp_path)
    assert threads_json.read(tmp_path) == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["threads.json"]


def test_a_run_without_threads(tmp_path: Path) -> None:
    assert threads_json.read(tmp_path) is None


def test_wrong_types_are_damage(tmp_path: Path) -> None:
    def read(changed: object) -> object:
        (tmp_path / threads_json.NAME).write_text(json.dumps(changed))
        return threads_json.read(tmp_path)

    assert_refused(read, json.loads(json_data.to_text(RECORD)), RunDirError, unread=("format",))


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (ThreadCall(thread=2, inputs=0), "of a thread or of inputs"),
        (ThreadCall(thread=0, inputs=2), "of a thread or of inputs"),
        (ThreadCall(thread=0, inputs=0, state=CallState.CHANGED), "does not say where"),
    ],
)
def test_what_does_not_fit_is_damage(tmp_path: Path, damaged: ThreadCall, message: str) -> None:
    threads_json.write(replace(RECORD, calls=(damaged,)), tmp_path)
    with pytest.raises(RunDirError, match=message):
        threads_json.read(tmp_path)


def test_the_calls_are_found_in_the_run_by_their_thread_and_order() -> None:
    begun = [call(0, 71), call(0, 71, CallKind.CONSTANT), call(1, 70), call(2, 99), call(3, 70)]
    assert list(RECORD.numbers(begun)) == [1, 0, 3, None]
    assert (RECORD.thread_number(71), RECORD.thread_number(99)) == (1, None)


def test_the_inputs_of_a_call_do_not_depend_on_the_number_of_threads() -> None:
    several, alone = deal(12, 4, 4), deal(12, 1, 4)
    assert [one.inputs for one in several] == [one.inputs for one in alone]
    assert {one.thread for one in alone} == {0}
    for begin in range(0, 12, 4):
        together = several[begin : begin + 4]
        assert [one.thread for one in together] == [0, 1, 2, 3]
        assert {one.inputs for one in together} == {0, 1, 2, 3}
    assert len({one.inputs for one in several if one.thread == 0}) == 3


@pytest.mark.parametrize(
    ("jitter", "variable"), [(Jitter(7), "7"), (Jitter(7, (0, 3)), "7:0,3"), (Jitter(7, (), memory=True), None)]
)
def test_the_variable_of_delays(jitter: Jitter, variable: str | None) -> None:
    assert jitter.variable == variable
