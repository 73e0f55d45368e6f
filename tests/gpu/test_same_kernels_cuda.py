"""A package that was compiled before, by torch, and the instrumented one have the same kernels: autotuned once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.build import BuildOptions
from tests.gpu import cuda_models
from tests.paths import ROOT

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
COMPILE = """
import json, sys, torch
from tests.gpu import cuda_models
from aoti_debug.instrument.frontend.worker.lower import triton_configs
torch._inductor.aoti_compile_and_package(torch.export.load(sys.argv[1]), package_path=sys.argv[2])
with open(sys.argv[3], "w") as file:
    json.dump({name: dict(found.values) for name, found in triton_configs().items()}, file)
"""


IN_ONE_PROCESS = """
import sys, torch
from pathlib import Path
from aoti_debug.instrument.builder.build import BuildOptions, build_report
from tests.gpu import cuda_models
program = torch.export.load(sys.argv[1])
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[2])
print(build_report(BuildOptions(program=program, output=Path(sys.argv[3]))).autotuning)
"""


def test_the_process_that_has_compiled_the_plain_package_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch has put its assembler into the variables of that process, which the hash of a source depends on."""
    torch.export.save(cuda_models.case("reductions").export(), tmp_path / "model.pt2")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    arguments = [str(tmp_path / name) for name in ("model.pt2", "plain.pt2", "ours.pt2")]
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, *arguments], capture_output=True, text=True, check=True
    )
    assert re.search(r"users=[1-9]\d*, earlier=0, measured=0", done.stdout), done.stdout


@pytest.mark.parametrize("name", ["reductions", "mixed"])
def test_configurations_come_from_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    program, configs = tmp_path / "model.pt2", tmp_path / "configs.json"
    torch.export.save(cuda_models.case(name).export(), program)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    arguments = [str(program), str(tmp_path / "plain.pt2"), str(configs)]
    subprocess.run([sys.executable, "-c", COMPILE, *arguments], check=True)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    options = BuildOptions(
        program=program, output=tmp_path / "ours.pt2", user_code=UserCode(("tests.gpu.cuda_models",))
    )
    built = builder.build_report(options)
    assert built.autotuning.users > 0
    assert built.autotuning.measured == 0
    ours = {kernel.name: dict(kernel.config) for kernel in built.manifest.kernels if kernel.language == "triton"}
    assert ours == json.loads(configs.read_text())
    assert {path: path.stat().st_mtime_ns for path in before} == before
