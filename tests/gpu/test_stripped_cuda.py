"""Packages of CUDA models without wrapper source: launches, grids and faults, recorded by symbol interposition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.built_model import Built, FromPackage
from tests.stripped_package import order, stripped

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def grids(run: RunDir) -> list[tuple[tuple[int, int, int], int, int]]:
    return [(grid.grid, grid.num_warps, grid.shared_bytes) for launch in run.launches for grid in launch.grids]


def device_order(run: RunDir) -> list[str]:
    """The launches as the device knows them: several kernels of a user's function have one name there."""
    mangled = {kernel.name: kernel.mangled for kernel in run.manifest.kernels}
    return [mangled.get(kernel, kernel) for kernel in order(run)]


@pytest.mark.parametrize("name", ["mixed", "dtypes"])
def test_launches_and_grids_are_those_of_the_instrumented_package(
    from_package: Callable[[str], FromPackage],
    tmp_path: Path,
    name: str,
) -> None:
    found = from_package(name)
    inputs = found.original.parent / "inputs.pt"
    one = runner.run(RunOptions(found.package, level=3, out=tmp_path / "one")).run
    other = runner.run(
        RunOptions(
            stripped(found.original, tmp_path / "s.pt2"),
            inputs=inputs,
            level=3,
            out=tmp_path / "other",
            user_code=UserCode(("tests.gpu.cuda_models",)),
        )
    ).run
    assert device_order(other) == device_order(one)
    assert grids(other) == grids(one) != []


def test_a_fault_is_laid_to_its_launch(
    build: Callable[[str], Built],
    tmp_path: Path,
) -> None:
    """An index beyond the table of the user's gather: the same launch as in the package with its source."""
    compiled = tmp_path / "compiled.pt2"
    torch._inductor.aoti_compile_and_package(torch.export.load(build("gather").program), package_path=str(compiled))
    torch.save((torch.full((256,), 1 << 40, device="cuda"),), tmp_path / "inputs.pt")
    result = runner.run(
        RunOptions(
            stripped(compiled, tmp_path / "s.pt2"),
            inputs=tmp_path / "inputs.pt",
            out=tmp_path / "runs",
            user_code=UserCode(("tests.gpu.cuda_models",)),
        )
    )
    assert result.verdict is not None
    assert result.verdict.launch is not None
    assert "gather" in result.verdict.launch.kernel
