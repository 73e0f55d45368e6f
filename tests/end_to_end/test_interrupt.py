"""An interrupt ends a command at once, with all of its processes, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

INTERRUPTED = 130
PATIENCE = 60.0  # seconds


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) + 1


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("interrupt") / "model.pt2"
    torch.export.save(torch.export.export(Model().eval(), (torch.ones(4),)), path)
    return path


def processes(session: int) -> list[int]:
    """The processes of a session that live, without its leader."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, _, _, of_session = path.read_text().rpartition(")")[2].split()[:4]
            if int(of_session) == session != int(path.parent.name) and state != "Z":
                found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("command", ["build", "triage", "compare"])
def test_nothing_is_left(program: Path, tmp_path: Path, command: str) -> None:
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    output = ["-o", "instrumented.pt2"] if command == "build" else []
    running = subprocess.Popen(
        [sys.executable, "-m", "aoti_debug", command, str(program), *output],
        cwd=work,
        env={**os.environ, "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + PATIENCE
    while not (seen := processes(running.pid)) and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert seen
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == INTERRUPTED
    assert "Traceback" not in said
    assert said.splitlines()[-1] == "interrupted: nothing is kept"
    while processes(running.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes(running.pid) == []
    assert [path.name for path in work.rglob("*")] == []
    assert [path.name for path in temporary.iterdir()] == []
