"""Models that use several streams, on a CUDA device: where launches are recorded, what a triage says of their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from aoti_debug.package.manifest import Kind
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.checks import races
from tests import torch_features
from tests.built_model import Built, build_model
from tests.once import once

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(not torch_features.SIDE_STREAMS, reason="this torch compiles no streams of a model (2.14 does)"),
]

MODULE = "tests.instrument.wrapper.cuda_models"  # which imports the operators of streams
RACING = ("fork_join", "side_kernels")  # in the code that torch 2.14.1 generates
NAMES = ("fork_join", "pipeline", "there_and_back", "two_branches", "side_kernels")


@pytest.fixture(scope="session", params=NAMES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A model of several streams, built once a session."""
    from tests.instrument.wrapper.cuda_models import Model, cases

    def make(folder: Path) -> Built:
        case = cases()[f"streams_{request.param}"]
        inputs = tuple(x.cuda() for x in case.inputs)
        with torch.no_grad():
            program = torch.export.export(Model(case.function), inputs, strict=False)
        assert case.change is not None
        case.change(program)
        return build_model(program, folder, {}, MODULE)

    return once(tmp_path_factory, f"cuda-streams-{request.param}", make)


def run_of(built: Built, folder: Path, **fields: object) -> RunDir:
    result = runner.run(RunOptions(built.package, out=folder, **fields))  # type: ignore[arg-type]
    assert result.verdict is None
    return result.run


@pytest.mark.parametrize("level", [1, 2, 3])
def test_launches_are_recorded_on_the_stream_that_they_run_on(built: Built, tmp_path: Path, level: int) -> None:
    run = run_of(built, tmp_path, level=level, calls=2)
    slots = {launch.site.stream: launch.stream_slot for launch in run.launches}
    assert set(slots) >= {0, 1}
    assert len(set(slots.values())) == len(slots)
    assert all(launch.stream_slot == slots[launch.site.stream] for launch in run.launches)
    assert all(launch.site.stream for launch in run.launches if launch.site.kind is Kind.SHIM_OUT)


def test_every_stream_has_completed_its_last_launch(built: Built, tmp_path: Path) -> None:
    run = run_of(built, tmp_path, level=3, calls=2)
    assert run.crumbs is not None
    completed = {crumb.stream_slot: crumb.completed for crumb in run.crumbs.crumbs}
    last = {launch.stream_slot: launch.sequence for launch in run.launches}
    assert {slot: completed[slot] for slot in last} == last


@pytest.mark.parametrize("fields", [{"level": 1}, {"level": 2}, {"level": 3, "guards": True}], ids=str)
def test_outputs_are_those_of_eager(
    built: Built,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
) -> None:
    """With guards also those of models that have a race: one stream works at a time then."""
    if request.node.callspec.params["built"] in RACING and "guards" not in fields:
        pytest.skip("the model has a race")
    from tests.instrument.wrapper import cuda_models

    for name in ("_record", "_wait"):  # in eager one stream does all; the events are numbers of the exported program
        monkeypatch.setattr(cuda_models, name, lambda *_: None)
    inputs, _ = torch.export.load(built.program).example_inputs
    expected = cuda_models.cases()[f"streams_{request.node.callspec.params['built']}"].function(*inputs).cpu()
    run_of(built, tmp_path / "runs", outputs=tmp_path / "outputs", **fields)
    (output,) = load_file(tmp_path / "outputs" / "0.safetensors").values()
    torch.testing.assert_close(output, expected, rtol=1e-3, atol=1e-3)


def test_a_triage_finds_the_races_that_torch_makes(built: Built, request: pytest.FixtureRequest) -> None:
    """Two of the models have one in the code that torch 2.14 generates; the others have none."""
    finding = races.statically(built.summary.manifest)
    assert finding.kind.is_fault is (request.node.callspec.params["built"] in RACING)
