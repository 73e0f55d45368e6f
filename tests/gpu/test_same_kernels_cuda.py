"""A package that was compiled before, by torch, and the instrumented one have the same kernels: autotuned once."""

from __future__ import annotations

import json
import os
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
