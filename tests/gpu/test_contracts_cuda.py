"""Contract checks of CUDA models: ordinary ones break nothing; operators that lie do, and tensors of other devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import InputMismatch
from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.contracts import contracts
from tests import lying_ops

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize(
    "name", ["mixed", "dynamic", "multi_kernel", "loop", "two_specialisations", "dtypes", "reductions"]
)
def test_ordinary_models_break_nothing(saved: Callable[[str], RunDir], name: str) -> None:
    run = saved(name)
    assert run.manifest.without_promises == ""
    assert {promise.device for promise in run.manifest.promises} >= {"cuda:0"}
    assert contracts.check(Dataflow(run)) == ()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lying")
    torch.export.save(lying_ops.program("cuda"), folder / "model.pt2")
    return builder.build(folder / "model.pt2", output=folder / "lying.pt2", imports=("tests.lying_ops",))


def test_operators_that_lie(package: Path, tmp_path: Path) -> None:
    run = runner.run(RunOptions(package, level=3, out=tmp_path)).run
    operators = {finding.where.operator for finding in contracts.check(Dataflow(run)) if finding.where is not None}
    assert operators == {f"lying::{name}.default" for name in ("dtype", "shape", "strides", "pair")}


def test_inputs_on_the_cpu(package: Path, tmp_path: Path) -> None:
    torch.save((torch.ones(6, 8), 2.0, torch.ones(6, 4)), tmp_path / "in.pt")
    with pytest.raises(InputMismatch) as caught:
        runner.run(RunOptions(package, inputs=tmp_path / "in.pt", out=tmp_path / "runs"))
    assert [(m.name, m.kind, m.promised, m.found) for m in caught.value.mismatches] == [
        ("x", "device", "cuda:0", "cpu"),
        ("y", "device", "cuda:0", "cpu"),
    ]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
def test_inputs_on_another_device(package: Path, tmp_path: Path) -> None:
    inputs = (torch.ones(6, 8, device="cuda:1"), 2.0, torch.ones(6, 4, device="cuda:0"))
    torch.save(inputs, tmp_path / "in.pt")
    with pytest.raises(InputMismatch) as caught:
        runner.run(RunOptions(package, inputs=tmp_path / "in.pt", out=tmp_path / "runs"))
    assert [(m.name, m.found) for m in caught.value.mismatches] == [("x", "cuda:1")]
    assert caught.value.hint == "move it: x.to('cuda:0')"
