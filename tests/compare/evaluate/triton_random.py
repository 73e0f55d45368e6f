"""Prints, as JSON, the random numbers that Triton's own functions draw in its interpreter: a script."""

from __future__ import annotations

import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers

COUNT = 64


@triton.jit
def draw(seed, uniform, normal, integer, low, high, count: tl.constexpr):
    offset = tl.arange(0, count).to(tl.uint32)
    key = tl.load(seed)
    tl.store(uniform + tl.arange(0, count), tl.rand(key, offset))
    tl.store(normal + tl.arange(0, count), tl.randn(key, offset))
    bounds = tl.load(low + tl.arange(0, count)), tl.load(high + tl.arange(0, count))
    tl.store(integer + tl.arange(0, count), triton_helpers.randint64(key, offset, bounds[0], bounds[1]))


def main(seed: int, low: int, high: int) -> None:
    uniform, normal, integer = torch.empty(COUNT), torch.empty(COUNT), torch.empty(COUNT, dtype=torch.int64)
    bounds = (torch.full((COUNT,), bound) for bound in (low, high))
    draw[(1,)](torch.tensor([seed]), uniform, normal, integer, *bounds, COUNT)
    print(json.dumps({"rand": uniform.tolist(), "randn": normal.tolist(), "randint": integer.tolist()}))


if __name__ == "__main__":
    import sys

    main(*map(int, sys.argv[1:]))
