"""Compiled packages of CUDA models, instrumented without anything but themselves: same launches, arguments and outputs
as the build from the exported program, and the same verdict on a fault."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.build import BuildOptions
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir
from tests import artifact_metadata
from tests.built_model import Built, FromPackage, save_run
from tests.gpu.test_main_job import CALL, MODELS, hosted
from tests.launched import launched

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
HERE = Path(__file__).resolve().parent


def outputs(program: Path, package: Path, target: Path) -> list[torch.Tensor]:
    """Of two calls, the second one's."""
    command = [sys.executable, "-c", CALL, str(program), str(package), str(target), "0"]
    subprocess.run(command, env=hosted(target.parent / "runs"), cwd=HERE, check=True, stderr=subprocess.PIPE)
    found: list[torch.Tensor] = torch.load(target)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_outputs_equal_those_of_the_package_that_torch_compiled(
    build: Callable[[str], Built],
    from_package: Callable[[str], FromPackage],
    tmp_path: Path,
    name: str,
) -> None:
    program, found = build(name).program, from_package(name)
    plain = outputs(program, found.original, tmp_path / "plain.pt")
    ours = outputs(program, found.package, tmp_path / "ours.pt")
    assert [torch.equal(a, b) for a, b in zip(plain, ours, strict=True)] == [True] * len(plain)


@pytest.mark.parametrize("name", MODELS)
def test_launches_are_those_of_the_build_from_the_exported_program(
    from_package: Callable[[str], FromPackage],
    saved: Callable[[str], RunDir],
    tmp_path: Path,
    name: str,
) -> None:
    assert launched(save_run(from_package(name), tmp_path / "runs")) == launched(saved(name))


@pytest.mark.parametrize("name", MODELS)
def test_kernels_are_the_package_s_own(from_package: Callable[[str], FromPackage], name: str) -> None:
    manifest = from_package(name).summary.manifest
    same = re.fullmatch(r"(\d+) of (\d+) kernels identical to the original", str(manifest.sameness))
    assert same is not None
    assert same.group(1) == same.group(2) != "0"
    triton = [kernel for kernel in manifest.kernels if kernel.language == "triton"]
    assert all(kernel.cubin_sha256 for kernel in triton)


def test_a_fresh_build_is_compared_with_a_package(
    build: Callable[[str], Built],
    from_package: Callable[[str], FromPackage],
    tmp_path: Path,
) -> None:
    options = BuildOptions(
        program=build("mixed").program,
        output=tmp_path / "fresh.pt2",
        against=from_package("mixed").original,
        user_code=UserCode(("tests.gpu.cuda_models",)),
    )
    built = builder.build_report(options)
    compared = built.comparison
    assert compared is not None
    # Autotuning may choose another configuration this time: what differs has to be named with its reason.
    names = {kernel.name for kernel in built.manifest.kernels}
    assert all(found.kernel in names and found.reason for found in compared.different)
    assert len(compared.different) < compared.kernels


def test_a_package_for_another_gpu(from_package: Callable[[str], FromPackage], tmp_path: Path) -> None:
    found = from_package("dtypes")
    major, minor = torch.cuda.get_device_capability()
    other = artifact_metadata.edited(
        found.package, tmp_path / "other.pt2", {"AOTI_COMPUTE_CAPABILITY": f"{major - 1}{minor}"}
    )
    message = rf"was compiled for a GPU of compute capability {major - 1}\.{minor}; this one has {major}\.{minor}"
    with pytest.raises(ArtifactError, match=message):
        runner.run(RunOptions(other, out=tmp_path / "runs", user_code=UserCode(trusted=True)))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_package_runs_on_the_gpu_that_its_inputs_are_on(
    from_package: Callable[[str], FromPackage], tmp_path: Path
) -> None:
    found = from_package("dtypes")
    given = torch.load(found.original.parent / "inputs.pt", map_location="cuda:1")
    torch.save(given, tmp_path / "inputs.pt")
    result = runner.run(RunOptions(found.package, inputs=tmp_path / "inputs.pt", out=tmp_path / "runs"))
    assert result.verdict is None
    arguments = [argument for launch in result.run.launches for argument in launch.args]
    assert {argument.layout.device for argument in arguments if argument.layout is not None} == {"cuda:1"}


def test_a_fault_is_triaged_from_the_package_alone(
    build: Callable[[str], Built],
    tmp_path: Path,
) -> None:
    """An index beyond the table of the user's gather, from the exported program and from the compiled package."""
    program = build("gather").program
    compiled = tmp_path / "compiled.pt2"
    torch._inductor.aoti_compile_and_package(torch.export.load(program), package_path=str(compiled))
    torch.save((torch.full((256,), 1 << 40, device="cuda"),), tmp_path / "inputs.pt")
    found = {}
    for model in (program, compiled):
        command = [
            "triage",
            str(model),
            "--inputs",
            str(tmp_path / "inputs.pt"),
            "--json",
            "--import",
            "tests.gpu.cuda_models",
        ]
        ran = subprocess.run(
            [sys.executable, "-m", "aoti_debug", *command, "--out", str(tmp_path / "triages")],
            stdout=subprocess.PIPE,
            cwd=HERE,
            check=False,
        )
        assert ran.returncode == 1
        found[model] = json.loads(ran.stdout)
    assert found[program]["launch"] == found[compiled]["launch"]
    assert found[program]["kernel"] == found[compiled]["kernel"]
    assert found[program]["kind"] == found[compiled]["kind"]
    shown = {model: {line.partition(":")[0] for line in found[model]["confirmed_by"]} for model in found}
    assert "interpret" in shown[compiled]
    assert shown[program] == shown[compiled]
