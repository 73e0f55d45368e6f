"""The complete launches in the flight recorder's file of an ended process."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.runs.rundir import flight_recorder
from aoti_debug.runs.rundir.flight_recorder import FlightStatus, Recording
from aoti_debug.runs.rundir.formats import shared_files
from tests.flight_file import FlightFile, Given


def read(folder: Path, file: FlightFile) -> Recording:
    path = folder / shared_files.FLIGHT_RECORDER
    path.write_bytes(file.bytes())
    recording = flight_recorder.read(path)
    assert recording is not None
    return recording


def launches(recording: Recording) -> list[str]:
    return [str(launch.key) for launch in recording.launches]


def test_launches_and_their_tensors(tmp_path: Path) -> None:
    file = FlightFile(keep=3)
    file.launch(0, Given(0, b"a" * 8, 0), Given(2, b"b" * 8, 64))
    file.launch(1, Given(1, b"", 0, FlightStatus.TOO_LARGE), call=2, left_out=5)
    recording = read(tmp_path, file)
    assert (recording.keep, launches(recording)) == (3, ["0.0", "2.1"])
    first, second = recording.launches
    assert [bytes(recording.bytes_of(tensor)) for tensor in first.tensors] == [b"a" * 8, b"b" * 8]
    assert [(t.slot, t.status) for t in first.tensors] == [(0, FlightStatus.KEPT), (2, FlightStatus.KEPT)]
    assert [(t.slot, t.status) for t in second.tensors] == [(1, FlightStatus.TOO_LARGE)]
    assert (first.left_out, second.left_out) == (0, 5)


def test_a_launch_that_was_being_copied_is_not_whole(tmp_path: Path) -> None:
    file = FlightFile()
    file.launch(0, Given(0, b"a" * 8, 0))
    file.launch(1, Given(0, b"b" * 8, 64), arrived=False)
    assert launches(read(tmp_path, file)) == ["0.0"]


def test_a_launch_is_gone_wholly_once_its_bytes_are_given_away(tmp_path: Path) -> None:
    file = FlightFile()
    file.launch(0, Given(0, b"a" * 8, 0), Given(1, b"a" * 8, 64))
    file.launch(1, Given(0, b"b" * 8, 128))
    file.launch(2, Given(0, b"c" * 8, 64), arrived=False)
    assert launches(read(tmp_path, file)) == ["0.1"]


def test_a_launch_whose_list_of_tensors_was_overwritten(tmp_path: Path) -> None:
    file = FlightFile()
    file.launch(0, Given(0, b"a" * 8, 0))
    file.launch(1, *(Given(i, b"b" * 8, 64 + 8 * i) for i in range(32)))
    assert launches(read(tmp_path, file)) == ["0.1"]


def test_old_launches_make_room_in_the_table(tmp_path: Path) -> None:
    file = FlightFile()
    for number in range(20):
        file.launch(number, Given(0, bytes([number]) * 8, 64 * number))
    assert launches(read(tmp_path, file)) == [f"0.{number}" for number in range(12, 20)]


def test_a_stream_has_begun_no_more_than_one_launch_after_the_last_whole_one(tmp_path: Path) -> None:
    """The host reused bytes that the device had not overwritten yet."""
    file = FlightFile()
    file.launch(0, Given(0, b"a" * 8, 0), device=True)
    file.launch(1, Given(0, b"b" * 8, 64), device=True)
    file.launch(2, Given(0, b"c" * 8, 128), device=True)
    file.launch(3, Given(0, b"d" * 8, 0), device=True, arrived=False)
    file.launch(4, Given(0, b"e" * 8, 64), device=True, arrived=False)
    assert launches(read(tmp_path, file)) == ["0.1", "0.2"]
    file.launch(0, Given(0, b"f" * 8, 128), call=1, device=True, arrived=False, stream=0x20)
    assert launches(read(tmp_path, file)) == ["0.1"]  # nothing says how far the other stream is


def test_the_last_launches_up_to_one(tmp_path: Path) -> None:
    file = FlightFile(keep=2)
    for number in range(5):
        file.launch(number, Given(0, b"a" * 8, 64 * number))
    recording = read(tmp_path, file)
    assert [launch.key.launch for launch in recording.launches_until(None)] == [3, 4]
    assert [launch.key.launch for launch in recording.launches_until(recording.launches[2].key)] == [1, 2]
    assert [launch.key.launch for launch in recording.launches_until(recording.launches[0].key)] == [0]


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / shared_files.FLIGHT_RECORDER
    assert flight_recorder.read(path) is None
    path.write_bytes(FlightFile().bytes(magic=bytes(8)))  # the process died while it set the memory up
    assert flight_recorder.read(path) is None
    path.write_bytes(FlightFile().bytes(version=3))
    with pytest.raises(RunDirError, match="version 3"):
        flight_recorder.read(path)
    path.write_bytes(FlightFile().bytes()[:-1])
    with pytest.raises(RunDirError, match="truncated"):
        flight_recorder.read(path)
    path.write_bytes(b"")
    with pytest.raises(RunDirError, match="cannot read"):
        flight_recorder.read(path)
