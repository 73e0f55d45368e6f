"""A model whose generated kernel of relu is wrong, and the same without the fault: what the fixture `wrong` gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from aoti_debug.instrument.builder import build as builder

CONFIGS = {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}


class Chain(nn.Module):
    """Launches 0.2 and 0.4 are those of relu."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second, third = self.layers
        hidden = first(x).relu()
        return third(second(hidden).relu()), hidden.argmax(-1)


@dataclass(frozen=True)
class Wrong:
    """The exported program, its instrumented package (level 3), and the one whose relu computes relu(x) + 1."""

    program: Path
    good: Path
    bad: Path


def build(folder: Path) -> Wrong:
    """Builds both packages in `folder`."""
    torch.manual_seed(0)
    program, good, bad = (folder / f"{name}.pt2" for name in ("program", "good", "bad"))
    with torch.no_grad():
        torch.export.save(torch.export.export(Chain().eval(), (torch.randn(8, 16),)), program)
    builder.build(program, output=good)
    builder.build_report(builder.BuildOptions(program=program, output=bad, inductor_configs=CONFIGS))
    return Wrong(program, good, bad)
