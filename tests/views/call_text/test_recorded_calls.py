from __future__ import annotations

from pathlib import Path

from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.call_text.recorded_calls import RecordedCalls
from tests.runs.show.recorded import level_2, replayed


def words(run: RunDir) -> list[str]:
    calls = RecordedCalls(run, None, None, hashes=False).calls(run.launches, {launch.key for launch in run.launches})
    return [str(call) for call in calls]


def test_a_launch_names_the_replay_that_measured_it(tmp_path: Path) -> None:
    assert [line.rpartition("# ")[2] for line in words(replayed(tmp_path))] == ["0.0, replay 8", "0.1, replay 8"]


def test_a_launch_that_no_replay_measured(tmp_path: Path) -> None:
    assert [line.rpartition("# ")[2] for line in words(level_2(tmp_path))] == ["0.0", "0.1", "0.2"]
