"""Kernels whose sums are split otherwise in another batch, or added in any order, and kernels that Inductor tunes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

from aoti_debug.app.cli.main import group
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.invariance.invariance import InvarianceOptions, invariance
from aoti_debug.compare.invariance.remedies import try_remedies, untried
from aoti_debug.compare.invariance.sample_rows import RowsRelation
from aoti_debug.compare.invariance.text import facts
from aoti_debug.compare.invariance.varying_launches import Invariance

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
WIDTH = 4096
MODELS = "tests.gpu.cuda_models"  # registers the operators


class Split(nn.Module):
    """A sum whose rows are split into more parts in a smaller batch, between generated kernels."""

    def forward(self, x: Tensor) -> Tensor:
        sums: Tensor = torch.ops.gputest.split_sum(torch.sin(x))
        return sums * 2


class AtomicSplit(nn.Module):
    """A product of matrices that is split along k, into more parts in a smaller batch, which are added atomically."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, 64))

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.gputest.split_product(torch.sin(x), self.weight)
        return product.relu()


class Tuned(nn.Module):
    """A sum whose number of terms at once was tuned, and is the same in every batch."""

    def forward(self, x: Tensor) -> Tensor:
        sums: Tensor = torch.ops.gputest.tuned_sum(torch.sin(x))
        return sums * 2


class Scattered(nn.Module):
    """A generated kernel that adds atomically."""

    def forward(self, rows: Tensor, index: Tensor) -> Tensor:
        return torch.zeros(4, rows.shape[1], device=rows.device).index_add(0, index, rows.sin())


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 32, 3, padding=1), nn.Conv2d(32, 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        returned: Tensor = self.second(self.first(x).relu())
        return returned


def options_of(module: nn.Module, x: Tensor, folder: Path, **configs: Any) -> InvarianceOptions:
    """The options of a module that is exported with a batch that is not fixed."""
    import tests.gpu.cuda_models  # noqa: F401  it registers operators

    batch = torch.export.Dim("batch", min=1, max=16)
    program = folder / "model.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(module.cuda(), (x,), dynamic_shapes=({0: batch},)), program)
    code = UserCode(imports=(MODELS,))
    return InvarianceOptions(model=program, out=folder / "runs", user_code=code, inductor_configs=configs)


def first_facts(found: Invariance) -> list[str]:
    """The facts of the first launch that varies."""
    return list(facts(found.begins[0].first, found.alone.run.manifest.kernels))


@pytest.mark.parametrize(("module", "kernel"), [(Split, "split_sum_kernel"), (AtomicSplit, "split_product_kernel")])
def test_splits_that_depend_on_the_batch_are_named(
    module: Callable[[], nn.Module], kernel: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    options = options_of(module(), torch.randn(16, WIDTH, device="cuda"), tmp_path)
    found = invariance(options)
    begins = found.begins[0].first
    assert kernel in begins.launch.kernel, found.verdict
    assert {tensor.rows.relation for tensor in begins.reads} <= {RowsRelation.EQUAL}
    said = first_facts(found)
    assert any("is launched with a grid of" in fact for fact in said)
    assert ("its source adds atomically" in said) is (module is AtomicSplit)
    assert try_remedies(found, options) == ()  # no setting changes a kernel that the user wrote
    assert untried(found.begin_sites, "cuda")


def test_a_configuration_that_was_tuned_is_the_same_for_all_sizes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    found = invariance(options_of(Tuned(), torch.randn(16, WIDTH, device="cuda"), tmp_path))
    assert found.verdict.startswith("INVARIANT"), found.verdict
    kernels = {kernel.name: kernel for kernel in found.alone.run.manifest.kernels}
    (tuned,) = (kernel for name, kernel in kernels.items() if "tuned_sum_kernel" in name)
    assert str(dict(tuned.config)["BLOCK"]) in {"256", "1024"}


def test_convolutions_by_a_template(tmp_path: Path) -> None:
    torch.manual_seed(0)
    settings = {"max_autotune": True, "max_autotune_conv_backends": "TRITON"}
    found = invariance(options_of(Convolution(), torch.randn(16, 8, 16, 16, device="cuda"), tmp_path, **settings))
    assert found.is_complete
    for item in found.begins:
        assert item.first.launch.site.op, "a template has one configuration for all sizes"


def test_a_kernel_that_adds_atomically_is_said_to(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rows = torch.randn(1 << 16, 32, device="cuda")
    index = torch.randint(0, 4, (1 << 16,), device="cuda")
    program = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Scattered(), (rows, index)), program)
    package = tmp_path / "instrumented.pt2"
    built = CliRunner().invoke(group, ["build", str(program), "-o", str(package)])
    assert built.exit_code == 0, built.output
    words = ["run", str(package), "--repeat", "20", "--out", str(tmp_path / "out"), "--json"]
    result = CliRunner().invoke(group, words)
    repeated = json.loads(result.stdout)["repeated"]
    assert (result.exit_code, repeated["calls"]) == (1, 20), result.output
    first = repeated["launches"][0]
    assert first["causes"][-1].startswith("atomics: "), first
    assert not any("threads" in cause for one in repeated["launches"] for cause in one["causes"])


def test_the_time_of_modules_is_that_of_kernels(tmp_path: Path) -> None:
    torch.manual_seed(0)
    program = tmp_path / "model.pt2"
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 8)).cuda()
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (torch.randn(512, 1024, device="cuda"),)), program)
    words = ["compare", str(program), "--by", "module", "--out", str(tmp_path / "compares"), "--json"]
    found = json.loads(CliRunner().invoke(group, words).stdout)
    assert found["times"] is not None
    assert "by its profiler" in found["times"]["source"] or "waited for the GPU" in found["times"]["source"]
    shares = {module["name"]: module["time"] for module in found["modules"]}
    shares |= {module["name"]: module["time"] for module in found["fused"]}
    assert shares["0"]["most"] > shares["2"]["least"]  # 512 times as many products
    assert sum(share["least"] for share in shares.values()) <= 1
