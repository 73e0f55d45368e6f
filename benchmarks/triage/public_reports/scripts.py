"""Programs about what calls, inputs and weights share: memory, marks of lazy views, buffers of weights, state."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.triage.public_reports.report import CLEAN, Example, Report


class Step(nn.Module):
    def forward(self, state: Tensor, x: Tensor) -> Tensor:
        state.mul_(0.5)
        return state + x.sin()


class Phase(nn.Module):
    def forward(self, part: Tensor, bias: Tensor) -> Tensor:
        return (part * 2).tanh() + bias


class Spectrum(nn.Module):
    def forward(self, spectrum: Tensor, gain: Tensor) -> Tensor:
        return torch.view_as_real(spectrum * gain).sum(-1)


class Countdown(nn.Module):
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x / (3 - self.count)[:, None]  # culprit


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(16, 16)
        self.scale = nn.Parameter(torch.rand(16))

    def forward(self, x: Tensor) -> Tensor:
        return (self.linear(x) * self.scale).tanh()


def _one_tensor() -> Example:
    torch.manual_seed(0)
    both = torch.randn(5, 7)
    return Example(Step(), (torch.randn(5, 7), torch.randn(5, 7)), (both, both))


def _imaginary_part() -> Example:
    torch.manual_seed(0)
    pairs = torch.randn(6, 9, 2)
    bias = torch.randn(9)
    return Example(Phase(), (pairs[..., 1], bias), (torch.view_as_complex(pairs).conj().imag, bias))


def _conjugate() -> Example:
    torch.manual_seed(0)
    spectrum, gain = torch.randn(6, 9, dtype=torch.complex64), torch.randn(9)
    return Example(Spectrum(), (spectrum, gain), (spectrum.conj(), gain))


def _normal(module: nn.Module) -> Example:
    torch.manual_seed(0)
    return Example(module, (torch.randn(4, 16),))


def _counted(package: str, example: Example) -> Any:
    model = torch._inductor.aoti_load_package(package)
    return [model(*example.args) for _ in range(4)]


def _forgotten(package: str, example: Example) -> Any:
    """Fills the other buffer of weights, but for one parameter, and makes it the active one."""
    unpacked = Path(package).with_suffix(".files")
    zipfile.ZipFile(package).extractall(unpacked)
    (library,) = unpacked.rglob("*.so")
    runner = torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1)
    given = {name: weight.detach() + 1 for name, weight in example.module.named_parameters()}
    variables = {fqn: name for name, fqn in runner.get_constant_names_to_original_fqns().items()}
    weights = {variables[name]: given[name] for name in ("linear.weight", "linear.bias")}
    runner.run(list(example.args))
    runner.update_constant_buffer(weights, use_inactive=True, validate_full_updates=False)
    runner.swap_constant_buffer()
    return runner.run(list(example.args))


def _divided(package: str, example: Example) -> Any:
    """Gives the model weights that it uses itself, and overwrites one of them between two calls."""
    model = torch._inductor.aoti_load_package(package)
    weights = {name: weight.detach() for name, weight in example.module.named_parameters()}
    model.load_constants(weights, check_full_update=True, user_managed=True)
    results = [model(*example.args)]
    weights["scale"].sub_(weights["scale"].clone()).div_(0.0)
    return [*results, model(*example.args)]


REPORTS = (
    Report(
        0,
        "one tensor for two inputs, and the model overwrites one",
        _one_tensor,
        "differs",
        ("contract",),
        (r"inputs state and x share memory",),
        part="-one-tensor",
    ),
    Report(
        0,
        "an imaginary part that is only marked as negated",
        _imaginary_part,
        "differs",
        ("contract",),
        (r"input 0 \(part\).*is_neg",),
        part="-negated",
    ),
    Report(0, "a conjugate that operators read", _conjugate, "same", CLEAN, part="-conjugate-view"),
    Report(
        0,
        "a buffer counts down to a division by zero",
        lambda: Example(Countdown(), (torch.zeros(3, 4),)),
        "nonfinite",
        ("nonfinite",),
        (r"aten\.div",),
        command="script",
        part="-countdown",
        drive=_counted,
    ),
    Report(
        195089,
        "the other buffer of weights is not filled as a whole",
        lambda: _normal(Scaled()),
        "package dies",
        ("contract",),
        (r"weight scale was not given",),
        command="script",
        drive=_forgotten,
    ),
    Report(
        0,
        "weights that the model uses itself become NaN",
        lambda: _normal(Scaled()),
        "nonfinite",
        ("nonfinite",),
        elements=("scale",),
        command="script",
        part="-user-managed",
        drive=_divided,
    ),
)
