"""A Triton kernel that waits for a value that nobody writes (`--import tests.gpu.hanging_ops`)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import nn
from torch.library import triton_op, wrap_triton


@triton.jit
def waiting_kernel(x, go, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ready = tl.load(go, volatile=True)
    while ready == 0:
        ready = tl.load(go, volatile=True)
    tl.store(out + index, tl.load(x + index, mask=index < n) + 1, mask=index < n)


@triton_op("hanging::wait", mutates_args={})
def wait(x: torch.Tensor, go: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(waiting_kernel)[(triton.cdiv(x.numel(), 64),)](x, go, out, x.numel(), BLOCK=64)
    return out


class Model(nn.Module):
    """Kernels before and after the one that waits until `go` is not 0."""

    def forward(self, x: torch.Tensor, go: torch.Tensor) -> torch.Tensor:
        return torch.softmax(wait(x.sin(), go), -1).cos()
