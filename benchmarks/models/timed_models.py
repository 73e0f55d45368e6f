"""The models that the benchmarks time.

* blocks: four blocks of Linear + GELU + LayerNorm, batch 2048, fp32; width 1024 on the CPU, 4096 on CUDA.
* launches: a chain of 600 small reductions, each one kernel (launch-bound on CUDA).
* uneven: generated kernels over tensors of very different sizes, and a product of large matrices; n = 1024 on CUDA, 128
  on the CPU.
* mixed: each form in which generated code launches kernels, once or a few times: generated kernels, calls of the C shim
  with an out argument or with results, calls in place, calls of the proxy executor.
* stream_blocks: four blocks of two products of 4096 x 4096 on two side streams beside the stream of the call.
* stream_launches: 100 times a small kernel on the stream of the call, a small product on a side stream, and the sum.

The last two are for CUDA and torch from 2.14 on alone; blocks, uneven and mixed are models of the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from tests import models


class Launches(nn.Module):
    def __init__(self, pairs: int) -> None:
        super().__init__()
        self.pairs = pairs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.pairs):
            x = (3 * (3 * x).softmax(0)).softmax(1)  # along another axis each time: never one kernel
        return x


class StreamBlocks(nn.Module):
    """Two products of each block run on side streams, at the same time."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(width, width) / width) for _ in range(2 * depth)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        streams = torch.ops.streams
        for number in range(0, len(self.weights), 2):
            a = torch.nn.functional.gelu(x)
            streams.record_event(10 * number + 10, 0)
            streams.wait_event(10 * number + 10, 1)
            b = a @ self.weights[number]
            streams.record_event(10 * number + 11, 1)
            streams.wait_event(10 * number + 10, 2)
            c = a @ self.weights[number + 1]
            streams.record_event(10 * number + 12, 2)
            streams.wait_event(10 * number + 11, 0)
            streams.wait_event(10 * number + 12, 0)
            x = torch.layer_norm(b + c, [b.shape[-1]]) + x
        return x


class StreamLaunches(nn.Module):
    """A side stream and the stream of the call wait for each other all the time."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        streams = torch.ops.streams
        for number in range(self.times):
            a = x.softmax(number % 2)
            streams.record_event(2 * number + 10, 0)
            streams.wait_event(2 * number + 10, 1)
            b = a @ a
            streams.record_event(2 * number + 11, 1)
            streams.wait_event(2 * number + 11, 0)
            x = b + a
        return x


STREAMS: dict[str, Callable[[], nn.Module]] = {
    "stream_blocks": lambda: StreamBlocks(4096, 4),
    "stream_launches": lambda: StreamLaunches(100),
}
# A buffer that is used again while another stream reads it is a race: the sums of outputs would differ.
STREAM_SETTINGS = {"allow_buffer_reuse": False, "inplace_buffers": False}


def stream_inputs(name: str) -> tuple[torch.Tensor, ...]:
    """The inputs of a model of several streams."""
    return (torch.randn(2048, 4096),) if name == "stream_blocks" else (torch.randn(64, 64),)


def change_streams(program: Any) -> None:
    """Puts the launches of an exported program on their streams, as `with stream:` in a model does."""
    from tests.instrument.wrapper.cuda_models import on_their_streams  # needs Triton

    on_their_streams(program)


def _of_streams(name: str, device: str) -> ExportedProgram:
    from tests.instrument.wrapper import cuda_models  # noqa: F401 - registers the operators of streams

    module, inputs = STREAMS[name]().to(device).eval(), stream_inputs(name)
    with torch.no_grad():
        program = torch.export.export(module, tuple(x.to(device) for x in inputs), strict=False)
    change_streams(program)
    return program


def export(name: str, device: str) -> ExportedProgram:
    """Exports a benchmark model by its name on "cpu" or "cuda"."""
    torch.manual_seed(0)
    if name in STREAMS:
        return _of_streams(name, device)
    module: nn.Module
    example: tuple[torch.Tensor, ...]
    if name == "blocks":
        width = 4096 if device == "cuda" else 1024
        module, example = models.Blocks(width, 4), (torch.randn(2048, width),)
    elif name == "launches":
        module, example = Launches(300), (torch.randn(64, 64),)
    elif name == "uneven":
        n = 1024 if device == "cuda" else 128
        module, example = models.Uneven(4 * n), (torch.randn(n, n), torch.randn(n // 2, n))
    else:
        module, example = models.CASES["mixed"].module(), models.inputs("mixed")
    with torch.no_grad():
        return torch.export.export(module.to(device).eval(), tuple(x.to(device) for x in example))
