"""Ranks that agree on a directory without talking to each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.machine.current_rank import Rank
from aoti_debug.runs.rundir import ranks_directory, run_directory

CLAIM = (
    "import sys; from pathlib import Path; from aoti_debug.base.machine import current_rank as ranks;"
    "from aoti_debug.runs.rundir import ranks_directory;"
    "print(ranks_directory.claim(Path(sys.argv[1]), ranks.of_environment()), flush=True); sys.stdin.read()"
)
SHELL = ("sh", "-c", '"$0" "$@"; true')  # a process between the launcher and the rank


def variables(rank: int, world_size: int = 4, **more: str) -> dict[str, str]:
    local = {"LOCAL_WORLD_SIZE": str(world_size)}
    return {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world_size), **local, "MASTER_ADDR": "a", **more}


def claim(base: Path, ranks: Mapping[int, Mapping[str, str]], before: Sequence[str] = ()) -> dict[int, Path]:
    """The directories of ranks, each a process; they live until all have one."""
    command = [*before, sys.executable, "-c", CLAIM, str(base)]
    processes = {
        rank: subprocess.Popen(command, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for rank, env in ranks.items()
    }

    def line_of(process: subprocess.Popen[str]) -> Path:
        assert process.stdout is not None
        return Path(process.stdout.readline().strip())

    with ThreadPoolExecutor() as pool:
        found = dict(zip(processes, pool.map(line_of, processes.values()), strict=True))
    for process in processes.values():
        process.communicate()
    return found


@pytest.mark.parametrize("before", [(), SHELL], ids=["children of the launcher", "behind a shell"])
def test_ranks_of_one_launch_share_a_directory(tmp_path: Path, before: Sequence[str]) -> None:
    found = claim(tmp_path / "runs", {rank: variables(rank) for rank in range(4)}, before)
    (directory,) = {path.parent for path in found.values()}
    assert {rank: path.name for rank, path in found.items()} == {rank: f"rank{rank}" for rank in range(4)}
    assert (tmp_path / "runs" / "latest").resolve() == directory
    read = ranks_directory.read(directory)
    assert (read.info.world_size, sorted(read.ranks)) == (4, [0, 1, 2, 3])


@pytest.mark.parametrize("other", [{"TORCHELASTIC_RESTART_COUNT": "1"}, {"TORCHELASTIC_RUN_ID": "next"}, {}])
def test_another_launch_gets_another_directory(tmp_path: Path, other: dict[str, str]) -> None:
    """Also one of the same launcher with the same id, whose ranks come when the earlier ones have ended."""
    first = claim(tmp_path, {rank: variables(rank, 2) for rank in range(2)})
    second = claim(tmp_path, {rank: variables(rank, 2, **other) for rank in range(2)})
    assert len({path.parent for path in first.values()}) == len({path.parent for path in second.values()}) == 1
    assert first[0].parent != second[0].parent


def test_two_machines_share_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher each, another name, and the same rendezvous."""
    ranks = [Rank(number, 2, 1, "job", "host:29500") for number in range(2)]
    monkeypatch.setattr(ranks_directory, "_launcher", lambda: "17-1")
    first = ranks_directory.claim(tmp_path, ranks[0])
    monkeypatch.setattr(ranks_directory, "machine_name", lambda: "other")
    monkeypatch.setattr(ranks_directory, "_launcher", lambda: "4-2")
    second = ranks_directory.claim(tmp_path, ranks[1])
    assert first.parent == second.parent


def test_a_later_launch_with_the_same_rendezvous(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first rank never came, so that its name is free: the launcher is another one."""
    ranks = [Rank(number, 3, 2, "none", "host:29500") for number in range(2)]
    monkeypatch.setattr(ranks_directory, "_launcher", lambda: "17-1")
    first = ranks_directory.claim(tmp_path, ranks[1])
    monkeypatch.setattr(ranks_directory, "_launcher", lambda: "18-9")
    second = ranks_directory.claim(tmp_path, ranks[0])
    third = ranks_directory.claim(tmp_path, ranks[1])
    assert first.parent != second.parent == third.parent


@pytest.mark.parametrize(
    ("ancestors", "launcher"),
    [
        ({7: 1, 1: 0}, "1-1"),  # torchrun is PID 1 of a container
        ({7: 5, 5: 1, 1: 0}, "1-1"),
        ({7: 0}, "unknown"),  # docker exec
        ({1: 0}, "unknown"),
        ({7: 5, 5: 4, 4: 1, 1: 0}, "4-4"),
    ],
)
def test_the_launcher(monkeypatch: pytest.MonkeyPatch, ancestors: dict[int, int], launcher: str) -> None:
    processes = {pid: (parent, str(pid)) for pid, parent in ancestors.items()}
    monkeypatch.setattr(ranks_directory, "_stat", processes.get)
    monkeypatch.setattr(ranks_directory, "_is_rank_itself", lambda pid: pid in (5, 7))
    monkeypatch.setattr(os, "getpid", lambda: next(iter(ancestors)))
    assert ranks_directory._launcher() == launcher


@pytest.mark.parametrize("target", ["../elsewhere", "{}/elsewhere", "..", "link"])
def test_an_untrusted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    base, rank = tmp_path / "runs", Rank(0, 2, 2)
    base.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (base / "link").symlink_to("../elsewhere")
    monkeypatch.setattr(ranks_directory, "_launcher", lambda: "17-1")
    (base / f".ranks-{ranks_directory._key(rank, '17-1')}").symlink_to(target.format(tmp_path))
    assert ranks_directory.claim(base, rank).parent.parent == base.resolve()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_run_of_ranks_is_no_run(tmp_path: Path) -> None:
    path = ranks_directory.claim(tmp_path, Rank(0, 2, 2))
    with pytest.raises(RunDirError, match="is a run of several ranks") as raised:
        run_directory.find(path.parent)
    assert raised.value.hint == f"name one of them: {path}"


WORLDS = [json.dumps({"format": 1, "world_size": size}) for size in (10**9, 0, -1)]


@pytest.mark.parametrize("text", ["{", json.dumps({"format": 2}), json.dumps({"format": 1}), *WORLDS])
def test_a_damaged_description(tmp_path: Path, text: str) -> None:
    (tmp_path / ranks_directory.NAME).write_text(text)
    with pytest.raises(RunDirError):
        ranks_directory.read(tmp_path)
