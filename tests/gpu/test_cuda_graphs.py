"""What a CUDA graph holds of a captured call, on a real device: breadcrumbs, watchpoints, statistics, summaries."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import Phase
from aoti_debug.package.manifest import Role
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.rundir import run_directory, summaries
from aoti_debug.runs.rundir.formats.journal_records import TensorStats
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show.calls_and_replays import replay_lines
from tests.built_model import Built

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CAPTURED = """
import os, sys, torch
from tests.gpu import cuda_models
args, kwargs = torch.export.load(sys.argv[1]).example_inputs
model = torch._inductor.aoti_load_package(sys.argv[2], True)
model(*args)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    model(*args)
"""
FAULT_IN_A_REPLAY = f"""{CAPTURED}
for _ in range(999):
    graph.replay()
torch.cuda.synchronize()
args[0].fill_(1 << 40)
graph.replay()
try:
    torch.cuda.synchronize()
except Exception as error:
    print(error, flush=True)
    os._exit(3)
"""


@pytest.mark.parametrize(
    ("settings", "most_suspects"),
    [({"AOTI_DEBUG_CRUMB_EVERY": "1"}, 1), ({}, 24), ({"AOTI_DEBUG_LEVEL": "2", "AOTI_DEBUG_PRINT": "none"}, 24)],
)
def test_a_fault_in_a_replay_names_replay_and_launches(
    build: Callable[[str], Built], tmp_path: Path, settings: dict[str, str], most_suspects: int
) -> None:
    built = build("gather")
    done = subprocess.run(
        [sys.executable, "-c", FAULT_IN_A_REPLAY, str(built.program), str(built.package)],
        env={**os.environ, "AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_DIR": str(tmp_path), **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    run = run_directory.open_run(base=tmp_path)
    assert [call.capturing for call in run.timeline.calls] == [False, True]
    verdict = diagnose(run)
    assert verdict is not None
    assert len(verdict.suspects) == most_suspects, verdict.why
    assert {launch.key.call for launch in verdict.suspects} == {1}
    assert any("gather" in launch.kernel for launch in verdict.suspects)
    assert verdict.why.endswith("in replay 1000 of the CUDA graph that captured call 1")


NAN_IN_A_REPLAY = f"""{CAPTURED}
for _ in range(730):
    graph.replay()
torch.cuda.synchronize()
args[0][1, 2] = float("nan")
for _ in range(3):
    graph.replay()
torch.cuda.synchronize()
"""


def test_nan_in_a_replay_names_replay_and_launch(build: Callable[[str], Built], tmp_path: Path) -> None:
    built = build("two_specialisations")
    done = subprocess.run(
        [sys.executable, "-c", NAN_IN_A_REPLAY, str(built.program), str(built.package)],
        env={**os.environ, "AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_DIR": str(tmp_path), "AOTI_DEBUG_WATCH": "*: nan"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (watchpoint,) = run_directory.open_run(base=tmp_path).timeline.watchpoints
    first = watchpoint.recorded[0]
    columns = torch.export.load(built.program).example_inputs[0][0].shape[1]
    assert (first.replay, first.key.call, first.element) == (731, 1, columns + 2)
    assert math.isnan(first.value)
    assert first.key.launch == min(hit.key.launch for hit in watchpoint.recorded)
    assert {hit.replay for hit in watchpoint.recorded} == {731}
    assert watchpoint.hits == 3 * len(watchpoint.recorded)
    assert "in replay 731 of the CUDA graph that captured call 1" in done.stderr


def test_summaries_have_every_replay(build: Callable[[str], Built], tmp_path: Path) -> None:
    built = build("two_specialisations")
    settings = {"AOTI_DEBUG_LEVEL": "2", "AOTI_DEBUG_SUMMARIES": "1", "AOTI_DEBUG_PRINT": "none"}
    done = subprocess.run(
        [sys.executable, "-c", NAN_IN_A_REPLAY, str(built.program), str(built.package)],
        env={**os.environ, "AOTI_DEBUG_DIR": str(tmp_path), **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = run_directory.open_run(base=tmp_path)
    found = summaries.read(run)
    assert found is not None
    series = [one for one in found.series if one.captured_call is not None]
    assert {one.captured_call for one in series} == {1}
    assert {(one.launch, one.argument) for one in series} == {
        (one.launch, one.argument) for one in found.series if one.captured_call is None
    }
    recorded_rows = sum(len(one.samples) for one in series)
    assert recorded_rows + found.missed == 733 * len(series)
    assert recorded_rows > 0
    for one in series:
        assert [sample.number for sample in one.samples] == sorted({sample.number for sample in one.samples})
        assert one.samples[-1].number == 733
        (last,) = (launch for launch in run.launches if launch.key.call == 1 and launch.key.launch == one.launch)
        argument = last.argument(one.argument)
        assert argument is not None
        expected = argument.stats[Phase.AFTER].statistics
        assert expected is not None
        sample = one.samples[-1]
        assert (sample.n_nan, sample.numel, sample.n_zero) == (expected.n_nan, expected.numel, expected.n_zero)
        assert sample.mean == pytest.approx(expected.mean, rel=1e-9, nan_ok=True)
    spoilt = [one for one in series if one.samples[-1].n_nan]
    assert spoilt
    for one in spoilt:
        assert {sample.number for sample in one.samples if sample.n_nan} <= {731, 732, 733}
    lines = replay_lines(run, run.launches, 200)
    assert any(line.startswith("NaN first in replay 73") for line in lines), lines


MEASURED = """
import sys, torch
from tests.gpu import cuda_models
args, kwargs = torch.export.load(sys.argv[1]).example_inputs
model = torch._inductor.aoti_load_package(sys.argv[2], True)
model(*args)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = model(*args)
for _ in range(4):
    graph.replay()
torch.cuda.synchronize()
args[0].copy_(args[0].flip(0))
graph.replay()
torch.cuda.synchronize()
eager = model(*args)
torch.cuda.synchronize()
pairs = zip(captured, eager) if isinstance(captured, (list, tuple)) else [(captured, eager)]
print(all(torch.equal(a.float(), b.float()) for a, b in pairs))
"""


def measured(build: Callable[[str], Built], name: str, level: str, out: Path) -> RunDir:
    """Call 0 is eager, call 1 captured and replayed 5 times, call 2 eager with the inputs of the last replay."""
    built = build(name)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(built.program), str(built.package)],
        env={**os.environ, "AOTI_DEBUG_LEVEL": level, "AOTI_DEBUG_DIR": str(out), "AOTI_DEBUG_PRINT": "none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"
    run = run_directory.open_run(base=out)
    assert [call.capturing for call in run.timeline.calls] == [False, True, False]
    return run


def recorded(run: RunDir, call: int) -> dict[tuple[int, int, Phase], TensorStats]:
    """By launch, argument and phase; not what a launch finds in a buffer that it fills: it may be anything."""
    return {
        (launch.key.launch, argument.slot, phase): stats
        for launch in run.launches
        if launch.key.call == call
        for argument in launch.args
        for phase, stats in argument.stats.items()
        if argument.role is Role.IN or phase is Phase.AFTER
    }


@pytest.mark.parametrize("name", ["two_specialisations", "dtypes"])
def test_the_statistics_of_the_last_replay_are_those_of_a_call(
    build: Callable[[str], Built], tmp_path: Path, name: str
) -> None:
    run = measured(build, name, "2", tmp_path)
    replayed, eager = recorded(run, 1), recorded(run, 2)
    assert replayed.keys() == eager.keys()
    assert len(replayed) > len(run.launches) / 3
    assert {stats.replay for stats in replayed.values()} == {5}
    assert {stats.replay for stats in eager.values()} == {None}
    for key, stats in replayed.items():
        other = eager[key]
        assert (stats.hash, stats.values, stats.layout and stats.layout.shape, stats.reason) == (
            other.hash,
            other.values,
            other.layout and other.layout.shape,
            other.reason,
        ), key
        if stats.statistics is None or other.statistics is None:
            assert stats.statistics is other.statistics
            continue
        found, expected = stats.statistics._asdict(), other.statistics._asdict()
        exact = found.keys() - {"mean", "std"}
        assert {field: found[field] for field in exact} == {field: expected[field] for field in exact}, key
        for field in ("mean", "std"):
            assert found[field] == pytest.approx(expected[field], rel=1e-9, abs=1e-12, nan_ok=True), key
    assert [call.replays for call in run.timeline.calls] == [None, 5, None]
    assert replay_lines(run, run.launches, 200) == [
        "statistics of replay 5 of the CUDA graph that captured call 1, the last one; earlier replays are not kept"
    ]
    assert any("earlier replays are not kept" in note.text for note in run.timeline.notes)


def test_the_hashes_of_the_last_replay_are_those_of_a_call(build: Callable[[str], Built], tmp_path: Path) -> None:
    run = measured(build, "dtypes", "hash", tmp_path)
    replayed, eager = recorded(run, 1), recorded(run, 2)
    assert {key: stats.hash for key, stats in replayed.items()} == {key: stats.hash for key, stats in eager.items()}
    assert {stats.replay for stats in replayed.values()} == {5}
    assert {stats.statistics for stats in replayed.values()} == {None}
    first = recorded(run, 0)
    assert any(first[key].hash != stats.hash for key, stats in eager.items()), "the inputs did not change"
