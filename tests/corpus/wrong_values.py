"""Kernels that compute something else than the program says: Inductor's settings plant a wrong relu."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.corpus.case import CPU, CUDA, GENERATED, Case, Example, Expected


class Relu(nn.Module):
    """The kernel between two linear layers computes relu(x) + 1."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()  # origin
        return self.second(hidden).sigmoid()


def _relu(device: str) -> Example:
    torch.manual_seed(0)
    return Example(Relu().to(device), (torch.randn(8, 16).to(device),))


WRONG = Expected("wrong_value", kernels=GENERATED, confirmed="*")

CASES = (
    Case("wrong_relu", _relu, WRONG, CPU, configs={"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}),
    Case("wrong_relu_on_cuda", _relu, WRONG, CUDA, configs={"triton.inject_relu_bug_TESTING_ONLY": "accuracy"}),
)
