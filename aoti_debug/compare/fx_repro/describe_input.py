"""Describes an input of a script, so that a text can be written of it. Runs in a child process."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from aoti_debug.base import dtypes
from aoti_debug.compare.fx_repro.request import InputTensor

if TYPE_CHECKING:
    import torch

LARGEST_TEXT = 2 << 10  # bytes of an input that a text holds


def describe(value: torch.Tensor) -> InputTensor:
    """The type and the range of a tensor, and its elements if these are few."""
    import torch

    dtype = dtypes.bare_name(value.dtype)
    is_integer = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
    numbers = value.cpu().numpy() if is_integer and value.numel() else None  # torch has no limits of uint16
    limits = (0, 0) if numbers is None else (int(numbers.min()), int(numbers.max()))
    data = ""
    if 0 < value.numel() * value.element_size() <= LARGEST_TEXT:
        plain = value.detach().resolve_conj().cpu().contiguous().reshape(-1).view(torch.uint8)
        data = base64.b64encode(plain.numpy().tobytes()).decode()
    return InputTensor(dtype, tuple(value.shape), tuple(value.stride()), *limits, data)
