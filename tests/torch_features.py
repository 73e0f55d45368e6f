"""What the installed torch has and others lack, asked once for all tests."""

from __future__ import annotations

import torch

BCOMPLEX32: tuple[str, ...] = ("bcomplex32",) if hasattr(torch, "bcomplex32") else ()
LINEAR_CROSS_ENTROPY = hasattr(torch.nn, "LinearCrossEntropyOptions")
PRINT = hasattr(torch._higher_order_ops, "print")
