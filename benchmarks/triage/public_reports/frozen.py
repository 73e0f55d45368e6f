"""Programs about weights that torch folds or packs when it compiles, half precision, and scripts of torch.compile."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports import operators
from benchmarks.triage.public_reports.report import CLEAN, Example, Report
from benchmarks.triage.public_reports.undefined import BLAMES_TORCH

FROZEN = {"freezing": True}
TUNED = {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP"}


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(64, 96), nn.Linear(96, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu()) * 2


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, groups=16)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu()).mean((2, 3))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.linear = nn.Linear(16, 12)
        self.gain = nn.Parameter(torch.rand(12))
        with torch.no_grad():
            self.gain[7] = torch.nan

    def forward(self, x: Tensor) -> Tensor:
        weight = self.linear.weight * self.gain.exp()[:, None]  # culprit
        return nn.functional.linear(x, weight, self.linear.bias).tanh()


class Scores(nn.Module):
    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        scores = q * k * 40.0  # culprit
        return torch.softmax(scores, -1)


class Labelled(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scaled, sums = operators.labelled(x.sin(), "rows", [1, 2], 0.5)
        return scaled, sums


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(self.linear(x).exp() - 1e6)  # culprit


class Rows(nn.Module):
    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        return x[rows] * 2  # culprit


class Sized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(0) / x.shape[0] + x.flip(0)


def _normal(module: nn.Module, *shape: int, dtype: torch.dtype = torch.float32) -> Example:
    torch.manual_seed(0)
    return Example(module.to(dtype), (torch.randn(*shape).to(dtype),))


def _images() -> Example:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 12, 12).to(memory_format=torch.channels_last)
    return Example(Images().to(memory_format=torch.channels_last), (x,))


def _scores() -> Example:
    torch.manual_seed(0)
    return Example(Scores(), (torch.randn(4, 32).half() * 30, torch.randn(4, 32).half() * 60))


def _rows() -> Example:
    return Example(Rows(), (torch.arange(12.0).reshape(4, 3), torch.tensor([0, 3, 4])))


def _compiled(package: str, example: Example) -> Any:
    """Compiles the module by itself and calls it."""
    return torch.compile(example.module)(*example.inputs)


def _compiled_step(package: str, example: Example) -> Any:
    """One step of training."""
    model = torch.compile(example.module)
    loss = model(*example.inputs).sum()
    loss.backward()
    return [loss, *(weight.grad for weight in example.module.parameters())]


def _compiled_sizes(package: str, example: Example) -> Any:
    model = torch.compile(example.module, dynamic=True)
    return [model(torch.ones(size, 3)) for size in (4, 7, 5)]


REPORTS = (
    Report(
        0,
        "linear layers by a template",
        lambda: _normal(Layers(), 8, 64),
        "same",
        CLEAN,
        part="-template",
        configs=TUNED,
        false=BLAMES_TORCH,
    ),
    Report(
        0,
        "linear layers of bfloat16, packed",
        lambda: _normal(Layers(), 8, 64, dtype=torch.bfloat16),
        "same",
        CLEAN,
        part="-packed",
        configs=FROZEN,
        false=BLAMES_TORCH,
    ),
    Report(
        0, "convolutions, packed", _images, "same", CLEAN, part="-packed-images", configs=FROZEN, false=BLAMES_TORCH
    ),
    Report(
        0,
        "a NaN in a weight that is folded",
        lambda: _normal(Scaled(), 4, 16),
        "nonfinite",
        ("nonfinite",),
        (),
        ("gain[7]",),
        (r"the compiler|may be wrong",),
        part="-folded-nan",
        configs=FROZEN,
    ),
    Report(
        0,
        "a NaN in a weight that is folded when the package is loaded",
        lambda: _normal(Scaled(), 4, 16),
        "nonfinite",
        ("nonfinite",),
        (),
        ("gain[7]",),
        (r"the compiler|may be wrong",),
        part="-loaded-nan",
        configs={"aot_inductor.use_runtime_constant_folding": True},
    ),
    Report(
        0,
        "scores that float16 does not hold",
        _scores,
        "differs",
        ("nonfinite", "wrong_value", "differs"),
        (r"aten\.mul",),
        false=(r"the program itself makes",),
        part="-scores",
    ),
    Report(
        0,
        "an operator of a string, a list and a number",
        lambda: _normal(Labelled(), 4, 6),
        "same",
        CLEAN,
        part="-labelled",
        false=BLAMES_TORCH,
    ),
    Report(
        0,
        "a logarithm of a negative number in a step of training",
        lambda: _normal(Step(), 5, 8),
        "nonfinite",
        ("nonfinite",),
        (r"aten\.log",),
        command="torch_compile",
        part="-step-nan",
        drive=_compiled_step,
    ),
    Report(
        0,
        "a row that there is not, by torch.compile",
        _rows,
        "package raises",
        ("fault",),
        (r"aten\.index",),
        ("tensors_1[2]",),  # the graph of torch.compile has no other names
        command="torch_compile",
        part="-compiled-rows",
        drive=_compiled,
    ),
    Report(
        0,
        "three sizes by torch.compile",
        lambda: _normal(Sized(), 4, 3),
        "same",
        CLEAN,
        command="torch_compile",
        part="-compiled-sizes",
        drive=_compiled_sizes,
        false=BLAMES_TORCH,
    ),
)
