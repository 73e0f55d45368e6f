"""Level hash on a GPU: the hashes of level 2, and no statistics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import Level, Phase
from aoti_debug.compare.diff.diff_runs import diff_runs
from aoti_debug.package.manifest import Role
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.built_model import Built

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def hashes(run: RunDir) -> dict[tuple[LaunchKey, int, Phase], int | None]:
    """Of all tensors that were read or written; what a launch finds in a buffer that it fills is anything."""
    return {
        (launch.key, argument.slot, phase): stats.hash
        for launch in run.launches
        for argument in launch.args
        for phase, stats in argument.stats.items()
        if argument.role is Role.IN or phase is Phase.AFTER
    }


@pytest.mark.parametrize("name", ["mixed", "dtypes"])
def test_hashes_are_those_of_level_2(
    build: Callable[[str], Built], tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    package = build(name).package
    values = runner.run(RunOptions(package, level=2, calls=2, out=tmp_path / "values")).run
    capfd.readouterr()
    result = runner.run(RunOptions(package, level=Level.HASH, calls=2, out=tmp_path / "hashes"))
    assert result.verdict is None
    assert capfd.readouterr().err == ""
    run = result.run
    assert run.level == Level.HASH
    found = hashes(run)
    assert found == hashes(values)
    assert sum(value is not None for value in found.values()) > len(run.launches)
    assert {s.statistics for launch in run.launches for a in launch.args for s in a.stats.values()} == {None}
    compared = diff_runs(values, run)
    assert compared.is_same
    numbers = [launch for launch in run.launches if launch.kernel.startswith("aoti_torch_item_")]  # no tensors
    assert (compared.same, compared.not_recorded) == (compared.paired - len(numbers), len(numbers))
