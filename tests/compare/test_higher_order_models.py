"""Operators whose arguments are graphs, from end to end: recorded, compared with the program, replayed alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import aoti_debug
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.compare import CompareOptions, compare
from aoti_debug.compare.comparison import Comparison
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.repro.run_repro import gather
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.launch import LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests.once import once

pytestmark = pytest.mark.slow
LEAST = {"loops": 0.99, "overwrites": 0.97, "attention": 0.99}  # of the bytes that launches write
REPLAYED = {"loops": "true_graph_0", "overwrites": "while_loop_body_graph_0", "attention": ""}  # a graph of the launch


@pytest.fixture(scope="module", params=LEAST)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, RunDir]:
    """A run at level 1 of each model."""

    def make(folder: Path) -> Path:
        from tests import higher_order_models

        package = folder / "model.pt2"
        aoti_debug.build(higher_order_models.exported(request.param), output=package)
        return runner.run(
            RunOptions(package, level=1, out=folder, user_code=UserCode(("tests.higher_order_models",)))
        ).run.path

    return request.param, open_run(once(tmp_path_factory, f"higher-order-{request.param}", make))


@pytest.fixture(scope="module")
def comparison(run: tuple[str, RunDir], tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    options = CompareOptions(model=run[1].path, out=tmp_path_factory.mktemp("compares"))
    return compare(replace(options, user_code=UserCode(("tests.higher_order_models",))))


def test_every_launch_is_recorded(run: tuple[str, RunDir]) -> None:
    name, record = run
    assert record.manifest.unrecognised == ()
    assert {launch.status for launch in record.launches} == {LaunchStatus.RETURNED}
    assert all(argument.files for launch in record.launches for argument in launch.args if argument.tensor is not None)
    assert any(launch.site.subgraph.endswith(REPLAYED[name]) for launch in record.launches)


def test_every_launch_is_compared_with_the_program(run: tuple[str, RunDir], comparison: Comparison) -> None:
    assert comparison.first_wrong is None
    total, missing = (
        sum(row.bytes for row in comparison.rows),
        {row.launch.id: (row.reason, row.notes) for row in comparison.rows if row.compared_bytes < row.bytes},
    )
    assert sum(row.compared_bytes for row in comparison.rows) >= LEAST[run[0]] * total, missing
    assert all(reason or notes for reason, notes in missing.values())
    assert all(row.launch.site.provenance.source for row in comparison.rows if row.outputs)


def test_a_launch_inside_is_replayed_alone(run: tuple[str, RunDir], tmp_path: Path) -> None:
    name, record = run
    launch = next(
        launch
        for launch in reversed(record.launches)
        if launch.site.subgraph.endswith(REPLAYED[name]) and launch.kernel.startswith("cpp_")
    )
    repro = write_repro(ReproOptions(launch.kernel, run=record.path, launch=launch.id, output=tmp_path / "repro"))
    assert gather(repro.path).outcome == "as recorded"
