"""A triage that is killed, has no room, may not write, sees very many launches, or is not alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.instrument.builder import build as builder
from aoti_debug.triage.results import triage_directory
from tests.triage.torture_inspection import unreadable

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
TRIAGE = (sys.executable, "-m", "aoti_debug", "triage")
SEED, KILLS = 4, 4
LIMIT = 600  # seconds
NONE_LEFT = 20.0  # seconds
IN_TMPFS = """
mount -t tmpfs -o "$1" none "$2" || exit 99
base="$2"; inspection="$3"; python="$4"; shift 4
"$@"; code=$?
"$python" "$inspection" "$base" >&2
exit $code
"""
ROUNDS = 33_400  # of a loop with three launches each


@dataclass(frozen=True)
class Ran:
    returncode: int
    stdout: str
    stderr: str

    @property
    def verdict(self) -> Any:
        return json.loads(self.stdout)

    @property
    def finding(self) -> tuple[int, str, str | None]:
        """Exit code, kind, kernel."""
        return self.returncode, self.verdict["kind"], self.verdict["kernel"]


def start(words: Sequence[str | Path], act: str = "") -> subprocess.Popen[str]:
    """Starts a command in a session of its own; `act` is what the operator of faulty_ops.py does."""
    return subprocess.Popen(
        [str(word) for word in words],
        env={**os.environ, "FAULTY_OPS": act},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> Ran:
    stdout, stderr = process.communicate(timeout=LIMIT)
    return Ran(process.returncode, stdout, stderr)


def triage(package: Path, base: Path, *words: str | Path, act: str = "") -> subprocess.Popen[str]:
    return start([*TRIAGE, package, "--json", "--out", base, *words], act)


SEGFAULT = (1, "fault", "faulty::act.default")


def mentioning(path: Path) -> list[str]:
    """Command lines of processes that name a path."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        if str(path) in words:
            found.append(words)
    return found


def test_killed_at_any_moment(faulty_package: Path, tmp_path: Path) -> None:
    base = tmp_path / "triages"
    began = time.monotonic()
    assert finish(triage(faulty_package, base, act="segv")).finding == SEGFAULT
    whole = time.monotonic() - began
    moments = random.Random(SEED)
    for _ in range(KILLS):
        process = triage(faulty_package, base, act="segv")
        time.sleep(moments.uniform(0.05, 0.95) * whole)
        process.kill()
        process.communicate()
        assert process.returncode in (-signal.SIGKILL, 1)  # 1: it was faster than before
        assert unreadable(base) == []
    until = time.monotonic() + NONE_LEFT
    while mentioning(base) and time.monotonic() < until:
        time.sleep(0.2)
    assert mentioning(base) == []
    assert finish(triage(faulty_package, base, act="segv")).finding == SEGFAULT
    assert triage_directory.open_triage(base=base).path.name == triage_directory.triages(base)[-1]


def in_tmpfs(options: str, package: Path, base: Path) -> Ran:
    """A triage into a file system of its own, which is gone with it; what is unreadable there is told on stderr."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare")
    command: list[str | Path] = [unshare, "--map-root-user", "--mount", "sh", "-c", IN_TMPFS]
    command += ["sh", options, base, HERE / "torture_inspection.py", sys.executable]
    command += [*TRIAGE, package, "--json", "--out", base]
    ran = finish(start(command, "segv"))
    if ran.returncode == 99 or "unshare failed" in ran.stderr:
        pytest.skip(f"no file system may be mounted here: {ran.stderr}")
    return ran


@pytest.mark.parametrize("room", ["16k", "256k", "1m", "4m"])
def test_a_full_disk(faulty_package: Path, tmp_path: Path, room: str) -> None:
    ran = in_tmpfs(f"size={room}", faulty_package, tmp_path)
    assert "Traceback" not in ran.stderr
    if ran.returncode == 1:
        assert ran.finding == SEGFAULT
    else:
        assert ran.returncode in (2, 5, 6), ran
        assert "No space left on device" in ran.stderr
        assert "hint: " in ran.stderr


def test_a_disk_that_may_not_be_written(faulty_package: Path, tmp_path: Path) -> None:
    ran = in_tmpfs("ro", faulty_package, tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[0].startswith(f"error: cannot make a directory in {tmp_path}: Read-only file system")


def test_two_at_once_in_one_directory(faulty_package: Path, tmp_path: Path) -> None:
    both = [triage(faulty_package, tmp_path, act=act) for act in ("segv", "raise")]
    crashed, raised = (finish(process) for process in both)
    assert crashed.finding == raised.finding == SEGFAULT
    assert crashed.verdict["what"] == "invalid memory access in faulty::act.default"
    assert "the answer is not 42" in raised.verdict["what"]
    found = [triage_directory.open_triage(name, tmp_path) for name in triage_directory.triages(tmp_path)]
    assert sorted(one.finding.what for one in found) == sorted([crashed.verdict["what"], raised.verdict["what"]])
    assert unreadable(tmp_path) == []


class Long(nn.Module):
    """Three launches a round; in round `bad` the logarithm of -1."""

    def forward(self, x: Tensor, rounds: Tensor, bad: Tensor) -> Any:
        def more(i: Tensor, x: Tensor) -> Tensor:
            return i < rounds

        def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.cos(x) + torch.log(torch.where(i == bad, -1.0, 1.0))

        return torch.while_loop(more, step, (torch.zeros((), dtype=torch.int64), x))


def test_a_hundred_thousand_launches(tmp_path: Path) -> None:
    def arguments(rounds: int, bad: int) -> tuple[Tensor, ...]:
        return torch.ones(8), torch.tensor(rounds), torch.tensor(bad)

    package, inputs = tmp_path / "long.pt2", {"clean": tmp_path / "clean.pt", "nan": tmp_path / "nan.pt"}
    torch.export.save(torch.export.export(Long(), arguments(3, -1)), tmp_path / "model.pt2")
    builder.build(tmp_path / "model.pt2", output=package)
    torch.save(arguments(ROUNDS, -1), inputs["clean"])
    torch.save(arguments(ROUNDS, ROUNDS - 7), inputs["nan"])

    clean = finish(triage(package, tmp_path / "clean", "--inputs", inputs["clean"]))
    assert (clean.returncode, clean.verdict["kind"]) == (8, "incomplete"), clean
    assert "which are many; aoti-debug compare does" in clean.verdict["what"]
    assert int(clean.verdict["evidence"][0].partition(" ")[0].replace(",", "")) > 100_000

    nan = finish(triage(package, tmp_path / "nan", "--inputs", inputs["nan"]))
    assert (nan.returncode, nan.verdict["kind"]) == (1, "nonfinite"), nan
    assert 3 * (ROUNDS - 7) <= int(nan.verdict["launch"].partition(".")[2]) <= 3 * (ROUNDS - 7) + 3
