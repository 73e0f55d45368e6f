"""Wrappers that the installed torch generates: every launch is read, and what they become compiles."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from aoti_debug.instrument.builder.instrument import instrument
from aoti_debug.instrument.frontend import sources
from aoti_debug.instrument.wrapper.analysis import SHIM_HEADERS, Analysis, analyse
from aoti_debug.instrument.wrapper.callees.proxy_operators import proxy_targets
from aoti_debug.instrument.wrapper.callees.shim_operators import shim_operators
from aoti_debug.package.manifest import Form, Role
from tests import machine_results, models
from tests.paths import ROOT

SHIMS = ROOT / "runtime_shims"
INCLUDE = Path(torch.__file__).parent / "include"

# What each model must bring out; the number of sites would tie the tests to one torch.
KERNELS = {
    "mixed": ("aoti_torch_cpu_addmm_out", "aoti_torch_cpu_convolution", "aten::complex.default", "aoti_torch_cpu_topk"),
    "mutation": ("aoti_torch_index_put_out", "aoti_torch_cpu_bernoulli__float", "aoti_torch_copy_", "aoti_torch_clone"),
    "custom": ("aotidebugtest::scale_all.default", "aotidebugtest::accumulate_.default"),
}


@dataclass(frozen=True)
class Lowered:
    wrapper: str
    kernels: str
    files: dict[str, str]

    def file(self, suffix: str) -> str:
        return next((text for name, text in self.files.items() if name.endswith(suffix)), "")


@pytest.fixture(scope="module", params=sorted(KERNELS))
def lowered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Lowered]:
    folder = tmp_path_factory.mktemp(request.param)
    settings = {"aot_inductor.package_cpp_only": True, "trace.provenance_tracking_level": 1}
    machine_results.link_into(folder / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "cache"))
        archive = torch._inductor.aoti_compile_and_package(
            models.program(request.param),
            package_path=str(folder / "lowered.pt2"),
            inductor_configs=settings | models.CASES[request.param].configs,
        )
    with zipfile.ZipFile(archive) as file:
        names = [name for name in file.namelist() if name.endswith((".cpp", ".json"))]
        files = {name: file.read(name).decode() for name in names}
    text, kernels = sources.split_kernels(next(t for name, t in files.items() if name.endswith(".wrapper.cpp")))
    return request.param, Lowered(text, kernels, files)


def analysis(model: Lowered) -> Analysis:
    from torchgen.aoti.fallback_ops import inductor_fallback_ops

    proxy = model.file(".wrapper.json")
    return analyse(
        model.wrapper,
        kernels=model.kernels,
        proxy=proxy,
        provenance=model.file("kernel_information.json"),
        headers=[path.read_text() for name in SHIM_HEADERS if (path := INCLUDE / name).exists()],
        operators=shim_operators(inductor_fallback_ops),
        schemas={target: _schema(target) for target in proxy_targets(proxy)},
    )


def _schema(target: str) -> str:
    namespace, name = target.split("::")
    return str(getattr(getattr(torch.ops, namespace), name.partition(".")[0]).default._schema)


@pytest.mark.slow
def test_every_launch_is_read(lowered: tuple[str, Lowered]) -> None:
    name, model = lowered
    result = analysis(model)
    assert result.unrecognised == ()
    assert set(KERNELS[name]) <= {site.kernel for site in result.sites}
    assert {site.callee for site in result.sites if not site.provenance.source} == set()
    named = {kernel.name for kernel in result.kernels}
    assert {site.kernel for site in result.sites if site.callee.startswith("cpp_")} == named
    tensors = [arg for site in result.sites for arg in site.args if arg.form in (Form.TENSOR, Form.POINTER, Form.LIST)]
    assert {arg.role for arg in tensors} <= {Role.IN, Role.OUT, Role.INOUT}


@pytest.mark.slow
def test_the_instrumented_wrapper_compiles(lowered: tuple[str, Lowered], tmp_path: Path) -> None:
    _, model = lowered
    result = analysis(model)
    source = tmp_path / "wrapper.cpp"
    source.write_text(instrument(model.wrapper, result.sites, result.kernels))
    flags = json.loads(model.file("_compile_flags.json"))
    command = [
        str(shutil.which("g++")),
        *("-fsyntax-only", "-w"),
        *(f"-{flag}" for flag in flags["cflags"] if flag.startswith(("std", "march", "fopenmp"))),
        *(f"-D{definition.strip()}" for definition in flags["definitions"]),
        *(f"-I{folder}" for folder in (SHIMS, *flags["include_dirs"])),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
