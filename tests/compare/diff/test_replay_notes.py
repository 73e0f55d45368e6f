"""Runs whose statistics are of replays of CUDA graphs."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.abi import CallFlag, Phase
from aoti_debug.compare.diff.diff_runs import replay_notes
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor

X = tensor(4)


def call_of(writer: JournalWriter, call: int, replay: int) -> None:
    """A captured call of one launch, whose tensor a replay has measured."""
    writer.call_begin(call, flags=CallFlag.CAPTURING)
    writer.launch(0, 0, X, call=call)
    writer.tensor_stats(0, 0, Phase.AFTER, statistics(), call=call, layout=X.layout, replay=(replay, replay))
    writer.call_end(call, launches=1)


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


def test_notes_are_in_the_order_of_calls(tmp_path: Path) -> None:
    runs = []
    for name, replay in (("a", 3), ("b", 4)):
        writer = JournalWriter(level=2)
        for call in (8, 16, 1):  # no order of a set
            call_of(writer, call, replay)
        package = make_manifest(site("triton_0", arg("buf0", Role.OUT)))
        runs.append(open_run(run_directory(tmp_path / name, package, writer)))
    assert [note.split()[4] for note in replay_notes(*runs)] == ["1", "8", "16"]
