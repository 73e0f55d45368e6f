"""Runs whose statistics are of replays of CUDA graphs."""

from __future__ import annotations

from pathlib import Path

from factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor

from aoti_debug.abi import CallFlag, Phase
from aoti_debug.diff.replay_notes import replay_notes
from aoti_debug.manifest import Role
from aoti_debug.rundir.run_directory import RunDir, open_run

X = tensor(4)


def replayed(base: Path, *replays: int) -> RunDir:
    """A captured call whose launches were measured by some replays; none: it was not captured."""
    writer = JournalWriter(level=2)
    writer.call_begin(flags=CallFlag.CAPTURING if replays else 0)
    for launch, replay in enumerate(replays or (0,)):
        writer.launch(launch, 0, X)
        told = (replay, max(replays)) if replays else None
        writer.tensor_stats(launch, 0, Phase.AFTER, statistics(), layout=X.layout, replay=told)
    writer.call_end(launches=len(replays) or 1)
    return open_run(run_directory(base, make_manifest(site("triton_0", arg("buf0", Role.OUT))), writer))


def test_replays_of_one_number_need_no_note(tmp_path: Path) -> None:
    assert list(replay_notes(replayed(tmp_path / "a", 5, 5), replayed(tmp_path / "b", 5, 5))) == []
    assert list(replay_notes(replayed(tmp_path / "c"), replayed(tmp_path / "d", 5))) == []


def test_an_unfinished_replay(tmp_path: Path) -> None:
    assert list(replay_notes(replayed(tmp_path / "a", 5, 5), replayed(tmp_path / "b", 5, 4))) == [
        "run b: the tensors of call 0 are of replays 4, 5 of its CUDA graph"
    ]


def test_other_numbers_of_replays(tmp_path: Path) -> None:
    assert list(replay_notes(replayed(tmp_path / "a", 7), replayed(tmp_path / "b", 8))) == [
        "the tensors of call 0 are of replay 7 of its CUDA graph in run a, of replay 8 in run b"
    ]
