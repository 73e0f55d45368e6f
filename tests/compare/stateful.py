"""A model with a state, and edits of its generated wrapper that drop or repeat the launch that writes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder import build as frontend_requests
from aoti_debug.instrument.frontend.lowered_model import LoweredModel

Edit = Callable[[str], str]
_STATEMENT = re.compile(r"^[^\n]*\bcpp_fused_\w+\([^\n]*\bmean\b[^\n]*;\n", re.MULTILINE)


class Averaged(nn.Module):
    """Keeps a running mean of what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(4, 8))

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.linear(x)
        self.mean.mul_(0.9).add_(hidden)
        return hidden


def exported(path: Path) -> Path:
    torch.manual_seed(0)
    with torch.no_grad():
        torch.export.save(torch.export.export(Averaged().eval(), (torch.randn(4, 8),)), path)
    return path


class Builder:
    """Builds packages whose wrapper is edited; the program is lowered once."""

    def __init__(self, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._program = program
        self._lower = frontend_requests.lower_or_unpack
        self._lowered: LoweredModel | None = None
        self._monkeypatch = monkeypatch

    def build(self, output: Path, edit: Edit) -> Path:
        def edited(checked: Any, torch_: Any, work: Path) -> LoweredModel:
            if self._lowered is None:
                folder = self._program.parent / "lowered"
                folder.mkdir()
                self._lowered = self._lower(checked, torch_, folder)
            sources = self._lowered.sources
            return replace(self._lowered, sources=replace(sources, wrapper=edit(sources.wrapper)))

        with self._monkeypatch.context() as patched:
            patched.setattr(frontend_requests, "lower_or_unpack", edited)
            return builder.build(self._program, output=output)


def dropped(wrapper: str) -> str:
    """Without the launch that writes the state."""
    text, count = _STATEMENT.subn("", wrapper)
    assert count == 1
    return text


def repeated(wrapper: str) -> str:
    """With that launch twice."""
    text, count = _STATEMENT.subn(r"\g<0>\g<0>", wrapper)
    assert count == 1
    return text
