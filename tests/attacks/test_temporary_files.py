"""What runs leave in the temporary directory when the model, or the tool itself, is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aoti_debug.base.machine.user_directories import scratch_directory
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of this process and its children."""
    path = tmp_path / "tmp"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr("tempfile.tempdir", str(path))
    return path


def test_a_crash_leaves_nothing_and_its_stack_has_the_names_of_functions(
    faulty_package: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "segv")
    result = runner.run(RunOptions(faulty_package, out=tmp_path / "runs"))
    assert result.verdict is not None
    assert list(temporary.iterdir()) == []


def test_the_next_run_deletes_what_a_killed_tool_has_left(
    faulty_package: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "hang")
    command = [sys.executable, "-m", "aoti_debug", "run", "-v", str(faulty_package), "--out", str(tmp_path / "runs")]
    tool = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert tool.stderr is not None
    while b"faulty::act" not in (line := tool.stderr.readline()):
        assert line, "the model was never called"
    (left,) = temporary.iterdir()
    with scratch_directory():
        assert left.exists()
    os.kill(tool.pid, signal.SIGKILL)
    tool.wait()
    tool.stderr.close()
    deadline = time.monotonic() + 30
    while left.exists() and time.monotonic() < deadline:
        long_ago = time.time() - 3600
        os.utime(left, (long_ago, long_ago))
        with scratch_directory():
            time.sleep(0.1)
    assert not left.exists()
