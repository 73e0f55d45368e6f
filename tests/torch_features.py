"""What the installed torch has and others lack, asked once for all tests."""

from __future__ import annotations

from pathlib import Path

import torch

BCOMPLEX32: tuple[str, ...] = ("bcomplex32",) if hasattr(torch, "bcomplex32") else ()
LINEAR_CROSS_ENTROPY = hasattr(torch.nn, "LinearCrossEntropyOptions")
# The text of the exception behind an error code of a C function.
EXCEPTION_TEXT = (
    "torch_exception_get_what" in (Path(torch.__file__).parent / "include/torch/csrc/stable/c/shim.h").read_text()
)
# The C++ that Inductor generates is compiled with line numbers.
LINE_NUMBERS = '"g1"' in (Path(torch.__file__).parent / "_inductor/cpp_builder.py").read_text()
PRINT = hasattr(torch._higher_order_ops, "print")
# Streams of a model's own, in what AOTInductor generates.
SIDE_STREAMS = (Path(torch.__file__).parent / "_inductor" / "codegen" / "aoti_runtime" / "streams.h").exists()
