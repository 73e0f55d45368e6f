"""Configurations of a compiled package's Triton kernels: found without a record, as Inductor had them, and good for
every way of replaying a launch."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.build import BuildOptions
from aoti_debug.package.manifest import ConfigOrigin, Kernel, Kind, PackageOrigin
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.launch import LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.many_replays import replay_many
from tests.paths import ROOT

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
HERE = Path(__file__).resolve().parent
MODELS = ("mixed", "reductions", "user_kernels")
BACKENDS = ("interpret", "jit", "cubin")
SAME_CODE = "compiled here to the package's own instructions"
# Compiles a program as any user does; what Inductor compiled its kernels with is kept beside the package.
COMPILE = """
import json, sys, torch
from tests.gpu import cuda_models
from aoti_debug.instrument.frontend.worker.lower import triton_configs
program, package, configs, settings = sys.argv[1:]
torch._inductor.aoti_compile_and_package(
    torch.export.load(program), package_path=package, inductor_configs=json.loads(settings)
)
with open(configs, "w") as file:
    json.dump({name: dict(found.values) for name, found in triton_configs().items()}, file)
"""


@dataclass(frozen=True)
class Compiled:
    """A run at level 1 of an instrumented compiled package, and what Inductor knew when it compiled that package."""

    run: RunDir
    configs: Mapping[str, Mapping[str, str]]

    @property
    def kernels(self) -> list[Kernel]:
        return [kernel for kernel in self.run.manifest.kernels if kernel.language == "triton"]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compiled]:
    """Compiles a case of cuda_models.py with a cache of its own, and runs its instrumented package; once a session."""

    @functools.cache
    def made(name: str) -> Compiled:
        from tests.gpu import cuda_models

        folder = tmp_path_factory.mktemp(f"{name}-configs")
        case = cuda_models.case(name)
        program = case.export()
        args, kwargs = program.example_inputs
        torch.save({"args": args, "kwargs": kwargs}, folder / "inputs.pt")
        torch.export.save(program, folder / "model.pt2")
        paths = [str(folder / file) for file in ("model.pt2", "compiled.pt2", "configs.json")]
        command = [sys.executable, "-c", COMPILE, *paths, json.dumps(dict(case.inductor_configs))]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "cache"))
            patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
            subprocess.run(command, cwd=HERE, check=True)
        options = BuildOptions(
            program=folder / "compiled.pt2",
            output=folder / "instrumented.pt2",
            inputs=folder / "inputs.pt",
            user_code=UserCode(("tests.gpu.cuda_models",)),
        )
        assert builder.build_report(options).manifest.source is PackageOrigin.COMPILED
        result = runner.run(RunOptions(folder / "instrumented.pt2", level=1, out=folder / "runs"))
        assert result.verdict is None
        return Compiled(result.run, json.loads((folder / "configs.json").read_text()))

    return made


@pytest.mark.parametrize("name", MODELS)
def test_configurations_are_those_that_inductor_had(compiled: Callable[[str], Compiled], name: str) -> None:
    found = compiled(name)
    known = [kernel for kernel in found.kernels if kernel.name in found.configs]
    assert known
    for kernel in known:
        assert kernel.config, kernel.name
        theirs, ours = found.configs[kernel.name], dict(kernel.config)
        sure = {n for n in ours if kernel.origin(n) is not ConfigOrigin.CHOSEN}
        assert {n: ours[n] for n in sure} == {n: theirs[n] for n in sure}, kernel.name
        possible = [dict(config) for config in (kernel.config, *kernel.other_configs)]
        assert {n: theirs[n] for n in ours} in possible, (kernel.name, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_blocks_of_the_grid_are_derived(compiled: Callable[[str], Compiled], name: str) -> None:
    for kernel in compiled(name).kernels:
        blocks = [block for block in ("XBLOCK", "YBLOCK", "BLOCK") if block in dict(kernel.config)]
        assert [kernel.origin(block) for block in blocks] == [ConfigOrigin.DERIVED] * len(blocks), kernel.name


@pytest.mark.parametrize("name", MODELS)
def test_every_launch_is_replayed_in_every_way(compiled: Callable[[str], Compiled], tmp_path: Path, name: str) -> None:
    """In the interpreter within its tolerance, as machine code bit for bit; jit finds the package's instructions."""
    run = compiled(name).run
    asserting = {kernel.name for kernel in run.manifest.kernels if "device_assert" in kernel.source}
    launches = {
        x.id: x for x in run.launches if x.site.kind is Kind.TRITON and x.status is not LaunchStatus.NOT_STARTED
    }
    folders = [
        write_repro(ReproOptions(launch.kernel, run=run.path, launch=id_, output=tmp_path / id_)).path
        for id_, launch in launches.items()
    ]
    done = replay_many([(folder, ("--backend", backend)) for backend in BACKENDS for folder in folders])
    assert len(done) == len(folders) * len(BACKENDS)
    failed = [f"{x.options[1]} {launches[x.name].kernel}: {x.code}\n{x.said[-1500:]}" for x in done if x.code != 0]
    assert not failed, "\n\n".join(failed)
    other = [
        f"{x.name} {launches[x.name].kernel}: {x.said[-500:]}"
        for x in done
        if x.options[1] == "jit" and launches[x.name].kernel not in asserting and SAME_CODE not in x.said
    ]
    assert not other, "\n\n".join(other)


def test_the_kinds_of_kernels_are_there(compiled: Callable[[str], Compiled]) -> None:
    names = {kernel.name for model in MODELS for kernel in compiled(model).kernels}
    kinds = ("triton_poi_", "triton_per_", "triton_red_", "tuned_kernel", "scaled_add_kernel")
    assert [kind for kind in kinds if not any(name.startswith(kind) for name in names)] == []
