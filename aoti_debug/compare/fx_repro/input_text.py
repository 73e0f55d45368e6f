"""Writes an input of a script as an expression: its elements, or random ones like them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from aoti_debug.base import dtypes
from aoti_debug.compare.fx_repro.request import InputTensor
from aoti_debug.package.recording.values import is_row_major
from aoti_debug.repro import literals

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


_LARGEST = 2**63 - 1  # that torch.randint takes


def input_text(tensor: InputTensor, device: str) -> str:
    """The expression of an input: with its elements if these are known, else random, of the same layout and range."""
    shape, dtype = list(tensor.shape), f"torch.{tensor.dtype}"
    if tensor.data:
        bytes_ = f"bytearray(base64.b64decode({literals.text(tensor.data)}))"
        value = f"torch.frombuffer({bytes_}, dtype={dtype}).reshape({shape})"
    elif tensor.dtype == "bool":
        value = f"torch.randint(0, 2, {shape}).bool()"
    elif "int" in tensor.dtype:
        value = f"torch.randint({tensor.smallest}, {min(tensor.largest + 1, _LARGEST)}, {shape}).to({dtype})"
    else:
        value = f"torch.randn({shape}).to({dtype})"
    if device != "cpu":
        value += f".to({literals.text(device)})"
    is_expanded = any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    if not is_expanded and not is_row_major(tensor.shape, tensor.strides):
        layout = f"{shape}, {list(tensor.strides)}, dtype={dtype}, device={literals.text(device)}"
        value = f"torch.empty_strided({layout}).copy_({value})"
    return value
