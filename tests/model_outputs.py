"""Outputs of a package of models.py, as bytes."""

from __future__ import annotations

from pathlib import Path

import torch

from tests import models
from tests.saved_tensors import tensor_bytes


def outputs(package: Path, name: str) -> list[bytes]:
    """The outputs' bytes of two calls; two, since a model may write to its constants."""
    model = torch._inductor.aoti_load_package(str(package))
    found: list[torch.Tensor] = []
    for _ in range(2):
        args = models.inputs(name)
        torch.manual_seed(7)
        result = model(*args)
        found += [result] if isinstance(result, torch.Tensor) else result
    return [tensor_bytes(tensor) for tensor in found]
