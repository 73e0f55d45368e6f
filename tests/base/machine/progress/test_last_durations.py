from __future__ import annotations

import os
from pathlib import Path

import pytest

from aoti_debug.base.machine.progress import last_durations
from aoti_debug.base.machine.progress.last_durations import LastDurations


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "aoti_debug" / "durations"


def test_the_last_duration_of_each_step(cache: Path) -> None:
    first = LastDurations("build", "model.pt2")
    assert LastDurations("build", "\udcff.pt2").hint("lower") == ""  # a path that is not UTF-8
    assert first.hint("lower") == ""
    first.remember("lower", 3.25)
    first.remember("link", 0.5)
    first.remember("lower", 4.4)
    again = LastDurations("build", "model.pt2")
    assert (again.hint("lower"), again.hint("link")) == (" (last time 4.4 s)", " (last time 500 ms)")
    assert LastDurations("build", "other.pt2").hint("lower") == ""
    assert LastDurations("triage", "model.pt2").hint("lower") == ""


def test_only_the_newest_are_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_durations, "_KEPT", 2)
    for number in range(4):
        LastDurations(str(number)).remember("step", 1.0)
        for path in cache.iterdir():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
    assert len(list(cache.iterdir())) == 2
    assert [LastDurations(str(number)).hint("step") != "" for number in range(4)] == [False, False, True, True]


def test_a_damaged_file_and_a_cache_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LastDurations("work").remember("step", 1.0)
    (file,) = cache.iterdir()
    file.write_text('{"seconds": {"step": "long"}}')
    assert LastDurations("work").hint("step") == ""

    def deny() -> Path:
        raise PermissionError("no")

    monkeypatch.setattr("aoti_debug.base.machine.cache.directory", deny)
    without = LastDurations("work")
    without.remember("step", 2.0)
    assert without.hint("step") == " (last time 2.0 s)"
