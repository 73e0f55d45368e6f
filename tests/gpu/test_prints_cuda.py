"""Prints and watchpoints of a model on a GPU."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
import torch

from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from tests import print_model
from tests.once import once

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> Path:
        torch.export.save(print_model.program("cuda"), folder / "model.pt2")
        return builder.build(folder / "model.pt2", output=folder / "prints.pt2")

    return once(tmp_path_factory, "cuda-prints", make)


@pytest.mark.parametrize("level", [0, 2, 3])
def test_it_prints_what_eager_prints(package: Path, tmp_path: Path, level: int) -> None:
    args, _ = print_model.program("cuda").example_inputs
    out = io.StringIO()
    with torch.no_grad(), contextlib.redirect_stdout(out):
        for _ in range(50):
            print_model.Prints()(*args)
    result = runner.run(RunOptions(package, level=level, out=tmp_path, calls=50))
    assert result.verdict is None
    assert (result.run.path / "stdout.log").read_text() == out.getvalue()


@pytest.mark.parametrize("level", [2, 3])
def test_watchpoints(package: Path, tmp_path: Path, level: int) -> None:
    watch = ("*: max > 50", "*: nan", "*: numel > 0")
    result = runner.run(RunOptions(package, level=level, out=tmp_path, calls=20, watch=watch))
    large, nan, any_ = result.run.timeline.watchpoints
    assert large.hits > 0
    assert all(hit.element is not None and hit.value > 50 for hit in large.recorded)
    assert (nan.hits, any_.hits) == (0, any_.evaluated)
    assert len(large.recorded) == min(large.hits, 256 // len(watch))
    assert large.hits % 20 == 0, "the calls are equal"


def test_save_and_stop(package: Path, tmp_path: Path) -> None:
    watch = ("*: max > 50",)
    result = runner.run(RunOptions(package, level=3, out=tmp_path, calls=3, watch=watch, on_hit="save,stop"))
    (watchpoint,) = result.run.timeline.watchpoints
    hit = watchpoint.stopped
    assert hit is not None
    assert result.run.state.value == "stopped"
    argument = result.run.launch(str(hit.key)).argument(hit.argument)
    assert argument is not None
    assert any(saved.path for saved in argument.files.values())


@pytest.mark.parametrize("numel", [100, 100_003])
def test_a_watchpoint_names_the_first_nan_of_a_large_tensor(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, numel: int
) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sqrt()

    def make(folder: Path) -> Path:
        rows = torch.export.Dim("rows", min=2)
        program = torch.export.export(Model(), (torch.ones(8, device="cuda"),), dynamic_shapes={"x": {0: rows}})
        torch.export.save(program, folder / "model.pt2")
        return builder.build(folder / "model.pt2", output=folder / "sqrt.pt2")

    x = torch.ones(numel, device="cuda")
    x[[numel - 1, numel - 7, numel // 2]] = -1
    torch.save((x,), tmp_path / "inputs.pt")
    package = once(tmp_path_factory, "cuda-sqrt", make)
    result = runner.run(
        RunOptions(package, level=3, out=tmp_path / "runs", inputs=tmp_path / "inputs.pt", watch=("*: nan",))
    )
    (watchpoint,) = result.run.timeline.watchpoints
    assert watchpoint.recorded[0].element == numel // 2
