"""What the installed torch has and others lack, asked once for all tests."""

from __future__ import annotations

from pathlib import Path

import torch

BCOMPLEX32: tuple[str, ...] = ("bcomplex32",) if hasattr(torch, "bcomplex32") else ()
LINEAR_CROSS_ENTROPY = hasattr(torch.nn, "LinearCrossEntropyOptions")
PRINT = hasattr(torch._higher_order_ops, "print")
# Streams of a model's own, in what AOTInductor generates.
SIDE_STREAMS = (Path(torch.__file__).parent / "_inductor" / "codegen" / "aoti_runtime" / "streams.h").exists()
