"""Every Triton launch of models that cover the kinds of kernels, replayed by every back end on a CUDA device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from torch._inductor.graph import GraphLowering

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.package.manifest import Kind
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.repro.templates.kernel import Settings
from aoti_debug.repro.templates.triton_kernel import TritonKernel
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.launch import Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.built_model import Built
from tests.many_replays import Replayed, replay_many

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

MODELS = ("dynamic", "multi_kernel", "two_specialisations", "dtypes", "reductions", "functions", "user_kernels")
FIRST_RUN = pytest.param(  # its kernels are compiled by a first run of the model
    "first_run",
    marks=pytest.mark.skipif(
        not hasattr(GraphLowering, "is_dual_wrapper_mode"), reason="this torch compiles kernels in one way only"
    ),
)
BACKENDS = ("jit", "cubin", "interpret")
SAME_CODE = "compiled here to the package's own instructions"
SHOWN = 1500  # characters of what a replay that failed printed

Package = Callable[[str], Path]


@pytest.fixture(scope="session")
def package(build: Callable[[str], Built]) -> Package:
    """The instrumented package of a case of cuda_models.py."""
    return lambda name: build(name).package


@dataclass(frozen=True)
class Replays:
    """What became of the Triton launches of a model.

    Attributes:
        refused: launch -> why it has no repro.
        done: one a launch and back end.
    """

    run: RunDir
    launches: dict[str, Launch]
    refused: dict[str, str]
    done: list[Replayed]

    def of(self, backend: str) -> dict[str, Replayed]:
        return {x.name: x for x in self.done if x.options[1] == backend}

    def failures(self, backend: str) -> list[str]:
        found = self.of(backend)
        texts = []
        for id_, launch in self.launches.items():
            replayed = found.get(id_)
            if replayed is None:
                texts.append(f"{id_} {launch.kernel}: {self.refused.get(id_, 'was not run')}")
            elif replayed.code != 0:
                texts.append(f"{id_} {launch.kernel}: {replayed.code}\n{replayed.said[-SHOWN:]}")
        return texts


@pytest.fixture(scope="session")
def replays(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Replays]:
    """Runs a model at level 1, writes the repro of every Triton launch and runs each with every back end."""
    known: dict[str, Replays] = {}

    def replayed(name: str) -> Replays:
        if name not in known:
            folder = tmp_path_factory.mktemp(f"{name}-repros")
            result = runner.run(RunOptions(package(name), level=1, out=folder / "runs"))
            assert result.verdict is None
            launches = {x.id: x for x in result.run.launches if x.site.kind is Kind.TRITON}
            refused, folders = {}, []
            for id_, launch in launches.items():
                try:
                    folders.append(
                        write_repro(
                            ReproOptions(launch.kernel, run=result.run.path, launch=id_, output=folder / id_)
                        ).path
                    )
                except AotiDebugError as error:
                    refused[id_] = str(error)
            jobs = [(path, ("--backend", backend)) for backend in BACKENDS for path in folders]
            known[name] = Replays(result.run, launches, refused, replay_many(jobs))
        return known[name]

    return replayed


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [*MODELS, FIRST_RUN])
def test_every_launch_is_as_recorded(replays: Callable[[str], Replays], name: str, backend: str) -> None:
    """Bit for bit as machine code; in the interpreter within its tolerance."""
    found = replays(name)
    assert found.launches
    for id_, launch in found.launches.items():
        if id_ in found.of(backend):
            replayed = found.of(backend)[id_]
            print(f"{name} {id_:5} {backend:9} {replayed.seconds:6.2f} s  {launch.kernel}: {str(replayed.code)[:60]}")
    failures = found.failures(backend)
    assert not failures, "\n\n".join(failures)


@pytest.mark.parametrize("name", [*MODELS, FIRST_RUN])
def test_the_source_compiles_to_the_packages_own_instructions(replays: Callable[[str], Replays], name: str) -> None:
    """But for those with assertions, which hold the lines that they stand on."""
    found = replays(name)
    asserting = {k.name for k in found.run.manifest.kernels if "device_assert" in k.source}
    other = [
        f"{id_} {launch.kernel}"
        for id_, launch in found.launches.items()
        if launch.status is not LaunchStatus.NOT_STARTED
        and launch.kernel not in asserting
        and id_ in found.of("jit")
        and SAME_CODE not in found.of("jit")[id_].said
    ]
    assert other == []


def test_the_models_cover_the_kinds_of_kernels(replays: Callable[[str], Replays]) -> None:
    sources = {}
    for name in MODELS:
        manifest = replays(name).run.manifest
        for launch in replays(name).launches.values():
            kernel = manifest.kernel(launch.grid.kernel) if launch.grid else None
            if kernel is not None:
                sources[kernel.name] = kernel.source
                assert kernel.config, kernel.name
    kernels = ("triton_poi_", "triton_per_", "triton_red_fused_gelu_sum", "triton_per_fused_gelu_sum", "tuned_kernel")
    assert [begin for begin in kernels if not any(name.startswith(begin) for name in sources)] == [], sorted(sources)
    text = "\n".join(sources.values())
    used = ("tl.atomic_add", "libdevice.", "triton_helpers.sort_with_index", "triton_helpers.welford", "def smoothed(")
    assert [name for name in used if name not in text] == []


# ---- a fault

BAD_ROW = 1 << 40


def test_a_gather_outside_its_table_faults_alone(package: Package, tmp_path: Path) -> None:
    index = torch.randint(0, 500, (256,), device="cuda")
    index[100] = BAD_ROW
    torch.save((index,), tmp_path / "bad.pt")
    result = runner.run(RunOptions(package("gather"), level=1, inputs=tmp_path / "bad.pt", out=tmp_path / "runs"))
    assert result.verdict is not None
    guilty = result.verdict.launch
    assert guilty is not None
    assert guilty.kernel.startswith("gather_kernel")
    written = write_repro(ReproOptions(guilty.kernel, run=result.run.path, output=tmp_path / "repro"))
    assert written.fault
    for backend in BACKENDS:
        (done,) = replay_many([(written.path, ("--backend", backend))])
        print(done.said)
        assert done.code == 11, (backend, done.code)
        assert "fault reproduced" in done.said or backend == "interpret"
    assert "source * width + column" in done.said  # the interpreter's report has the line


# ---- kernels that may overlap the one before them


@triton.jit
def increment(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.extra.cuda.gdc_wait()
    value = tl.load(x + index, mask=index < n)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(x + index, value + 1, mask=index < n)


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="this GPU overlaps no kernels"
)
def test_a_kernel_that_waits_for_the_one_before_it_sees_what_that_wrote(tmp_path: Path) -> None:
    x = torch.zeros(1 << 20, device="cuda")
    kernel = TritonKernel(
        increment,
        signature={"x": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constants={"BLOCK": 1024},
        divisible=("x", "n"),
        grid=(1024, 1, 1),
        num_warps=4,
        num_stages=1,
        options={"launch_pdl": True},
        overlaps=True,
    )
    kernel.prepare(Settings(tmp_path, backend="jit"))
    for _ in range(500):
        kernel(x=x, n=ctypes.c_int32(x.numel()))
    assert torch.equal(x, torch.full_like(x, 500))
