from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from aoti_debug.app.cli.main import group
from aoti_debug.base.abi import Level
from aoti_debug.base.errors import RunDirError
from aoti_debug.compare.diff.repeated_calls import RepeatedCalls, compare_calls
from aoti_debug.compare.diff.text import repeat_lines
from aoti_debug.runs.rundir import run_directory
from tests.factories import triton_kernel
from tests.triage.recorder import Recorder

X = torch.arange(4.0)


def compared(base: Path, results: list[list[torch.Tensor]], *, state: bool = False, source: str = "") -> RepeatedCalls:
    """Calls of two launches, the second of which reads what the first one wrote.

    Args:
        results: what the two launches wrote, of each call.
        state: the first launch reads another state in each call.
    """
    kernels = (replace(triton_kernel("triton_first"), source=source),) if source else ()
    recorder = Recorder(base, inputs=("x",), kernels=kernels)
    for call, (first, second) in enumerate(results):
        recorder.journal.call_begin(call=call)
        recorder.launch("triton_first", {"x": X + call if state else X}, {"buf0": first}, call=call)
        recorder.launch("triton_second", {"buf0": first}, {"buf1": second}, call=call)
        recorder.journal.call_end(launches=2, call=call)
    recorder.journal.run_end()
    return compare_calls(recorder.run())


def test_calls_that_repeat(tmp_path: Path) -> None:
    found = compared(tmp_path, [[X, X + 1]] * 3)
    assert (found.calls, found.launches, found.changed_state) == (3, (), 0)
    assert repeat_lines(found) == ["REPEATABLE in 3 calls: equal bytes from equal bytes"]


def test_the_launch_that_does_not_repeat_and_not_its_reader(tmp_path: Path) -> None:
    found = compared(tmp_path, [[X, X + 1], [X, X + 1], [X * 2, X * 2 + 1], [X * 3, X * 3 + 1]])
    (only,) = found.launches
    assert (only.launch.id, only.calls) == ("0.0", (2, 3))
    assert (found.changed_state, found.following) == (0, 1)
    lines = repeat_lines(found)
    assert lines[0] == "NOT REPEATABLE from 0.0 triton_first on"
    assert lines[1] == "0.0 triton_first read the same inputs and wrote different results in 2 of 3 later calls"
    assert "  cause    not known: a race, or a read of memory that nothing has written" in lines
    assert lines[-2] == "next: aoti-debug triage --guards finds uninitialised reads"
    assert lines[-1].endswith("then repro.py --repeat 100 finds races")


def test_a_state_that_changes_is_no_cause(tmp_path: Path) -> None:
    found = compared(tmp_path, [[X, X + 1], [X + 1, X + 2]], state=True)
    assert (found.launches, found.changed_state, found.following) == ((), 1, 1)
    assert repeat_lines(found)[1] == "note: 1 launch read an input or a state that an earlier call has changed"


def test_atomic_additions_are_told(tmp_path: Path) -> None:
    source = "def triton_first(in_ptr0, out_ptr0):\n    tl.atomic_add(out_ptr0 + x0, tmp1)\n"
    found = compared(tmp_path, [[X, X + 1], [X * 2, X * 2 + 1]], source=source)
    assert found.launches[0].causes == ("it adds atomically: the order of its additions changes",)
    assert "  cause    it adds atomically: the order of its additions changes" in repeat_lines(found)


def test_a_run_of_one_call(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="has no second call"):
        compared(tmp_path, [[X, X]])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--repeat", "3", "--calls", "2"), "--repeat and --calls exclude each other"),
        (("--repeat", "3", "--level", "3"), "--repeat compares hashes, and level 3 records none"),
        (("--repeat", "3", "--launch", "0.3"), "--repeat compares all launches"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], problem: str) -> None:
    result = CliRunner().invoke(group, ["run", "package.pt2", *words])
    assert problem in str(result.exception)


def test_a_package(faulty_package: Path, tmp_path: Path) -> None:
    words = ["run", str(faulty_package), "--repeat", "3", "--out", str(tmp_path / "runs")]
    result = CliRunner().invoke(group, words)
    assert result.exit_code == 0, result.output
    assert "REPEATABLE in 3 calls" in result.output
    assert run_directory.open_run(tmp_path / "runs" / "latest").level == Level.HASH
