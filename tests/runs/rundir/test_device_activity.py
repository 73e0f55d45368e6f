"""What a GPU did in a run, as a file that may be damaged or large."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.machine.files import untrusted_files
from aoti_debug.runs.rundir import device_activity
from aoti_debug.runs.rundir.device_activity import NAME, Activity, DeviceActivity, Enqueued

FOUND = DeviceActivity(
    (Enqueued(1, 1000, 1500), Enqueued(2, 2000, 2500, replays=True)),
    (Activity("relu", 7, 1, 1800, 300), Activity("gemm", 7, 2, 2600, 400)),
    (1e-6,),
    (2e-6,),
    (3e-6,),
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert device_activity.read(tmp_path) is None
    device_activity.write(FOUND, tmp_path)
    assert device_activity.read(tmp_path) == FOUND


def test_rows_are_sorted_by_time(tmp_path: Path) -> None:
    device_activity.write(replace(FOUND, enqueued=FOUND.enqueued[::-1], activities=FOUND.activities[::-1]), tmp_path)
    assert device_activity.read(tmp_path) == FOUND


def test_the_most_that_is_recorded_can_be_read(tmp_path: Path) -> None:
    count = 1000
    hour = 3_600_000_000_000
    enqueued = [  # two for each: a function of the driver within one of the runtime
        Enqueued(10**9 + n // 2, hour + n, hour + n + 10**7) for n in range(2 * count)
    ]
    activities = [Activity(f"kernel {n % 10}", 1000, 10**9 + n, hour + n, 10**9) for n in range(count)]
    first = Enqueued(1, 0, 1)
    device_activity.write(DeviceActivity((first, *enqueued), tuple(activities), (1.0,), (1.0,)), tmp_path)
    each = (tmp_path / NAME).stat().st_size / count
    assert each * device_activity.MAX_ACTIVITIES < untrusted_files.LARGEST_JSON


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"profiled": []}, "profiled is empty"),
        ({"unprofiled": []}, "unprofiled is empty"),
        ({"profiled": [-1e-6]}, "a time is negative"),
        ({"back_to_back": [-1e-6]}, "a time is negative"),
        ({"begin_ns": -1}, "begin_ns has a number that is negative"),
        ({"begin_ns": 10**400}, "begin_ns has a number that is negative or too large"),
        ({"enqueued": [[1, 0, -5, 0]]}, "enqueued has a number that is negative"),
        ({"activities": [[-1, 7, 1, 0, 5]]}, "activities has a number that is negative"),
        ({"activities": [[0, 7, 1, 0, -1000000000]]}, "activities has a number that is negative"),
        ({"activities": [[2, 7, 1, 0, 5]]}, "activities has a name that is not in names"),
        ({"activities": [[0, 7, 1, 0]]}, "not a list of 5"),
    ],
)
def test_a_damaged_file(tmp_path: Path, damage: dict[str, Any], reason: str) -> None:
    device_activity.write(FOUND, tmp_path)
    content = json.loads((tmp_path / NAME).read_text()) | damage
    (tmp_path / NAME).write_text(json.dumps(content))
    with pytest.raises(RunDirError, match=f"is damaged: .*{reason}") as raised:
        device_activity.read(tmp_path)
    assert raised.value.hint


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(untrusted_files.LARGEST_JSON + 1)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to("nothing"), "it is a symbolic link"),
        (lambda path: path.mkdir(), "it is a directory"),
        (_sparse, "it is larger than"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, make: Callable[[Path], None], reason: str) -> None:
    make(tmp_path / NAME)
    with pytest.raises(RunDirError, match=f"cannot read .*{NAME}: {reason}") as raised:
        device_activity.read(tmp_path)
    assert raised.value.hint
