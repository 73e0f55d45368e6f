"""TF32, in which a GPU may multiply float32 numbers: with 10 bits of mantissa. Runs in a child process.

torch lets cuDNN use it for convolutions unless `torch.backends.cudnn.allow_tf32` is off, and cuBLAS for matrix products
if `torch.backends.cuda.matmul.allow_tf32` is on. Whether it is used depends on layout and size, so that eager and a
kernel may differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass

_CONVOLUTIONS = frozenset({"convolution", "_convolution", "cudnn_convolution", "conv1d", "conv2d", "conv3d"})
_PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "matmul", "linear"})
_DROPPED_BITS = 13  # of the 23 of float32


def may_use(target: str, device: str) -> bool:
    """True if an operator of float32 tensors may multiply in TF32 on a device."""
    import torch

    if not device.startswith("cuda"):
        return False
    name = target.split(".")[1] if target.startswith("aten.") else ""
    if name in _CONVOLUTIONS:
        return bool(torch.backends.cudnn.allow_tf32)
    return name in _PRODUCTS and bool(torch.backends.cuda.matmul.allow_tf32)


def rounded(value: Any) -> Any:
    """The nearest TF32 numbers to a float32 tensor; another value as it is."""
    import torch

    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    bits = value.contiguous().view(torch.int32)
    half, mask = 1 << (_DROPPED_BITS - 1), -(1 << _DROPPED_BITS)
    nearest = ((bits + half) & mask).view(torch.float32)
    return torch.where(value.isfinite(), nearest, value)
