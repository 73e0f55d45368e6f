"""Lowers relu as the absolute value: `--import tests.wrong_lowering`."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.lowering import lowerings

_ABS = lowerings[torch.ops.aten.abs.default]


def _wrong(x: Any) -> Any:
    return _ABS(x)


lowerings[torch.ops.aten.relu.default] = _wrong
