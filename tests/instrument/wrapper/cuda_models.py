"""Models whose CUDA wrappers are excerpts, made without a GPU by the torch that is installed.

    python -m tests.instrument.wrapper.cuda_models NAME...

stores `torch_VERSION_NAME.cpp.txt` under tests/golden/wrapper. Needs a torch that was built for CUDA, with its Triton.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl
from torch._higher_order_ops.while_loop import while_loop
from triton.tools.tensor_descriptor import TensorDescriptor

from aoti_debug.instrument.frontend.worker.autotuning import with_sources
from tests.instrument.wrapper import excerpts
from tests.instrument.wrapper.without_gpu import generated

SIDE = 7  # a stream of the model
FIRST_RUN = {"triton.autotune_at_compile_time": False}  # the model runs once, to compile its kernels
PROFILED = {"cpp.enable_kernel_profile": True}


class Model(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Calls the function."""
        return self.function(*inputs)


@dataclass(frozen=True)
class Case:
    """A function, its inputs, and how it is lowered."""

    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    settings: Mapping[str, object] = field(default_factory=dict)
    strict: bool = False
    change: Callable[[Any], None] | None = None
    with_sources: bool = False  # as in a build, where Inductor leaves those of its kernels out


@triton.jit
def add_kernel(x, y, o, n, alpha, FLAG: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n) * alpha, mask=i < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def tuned_kernel(x, o, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def double_kernel(x_desc, o_desc, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    at = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    o_desc.store(at, x_desc.load(at) * 2)


def _add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    o = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, o, x.numel(), 0.5, FLAG=True, BLOCK=256)
    return o


def _several(x: torch.Tensor, y: torch.Tensor) -> Any:
    return _tuned(_add(torch.relu(x @ y), y)), torch.softmax(x, -1).sum()


def _tuned(x: torch.Tensor) -> torch.Tensor:
    o = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, o, x.numel())
    return o


def _double(x: torch.Tensor) -> torch.Tensor:
    o = torch.empty_like(x)
    blocks = [32, 32]
    double_kernel[(2, 2)](TensorDescriptor.from_tensor(x, blocks), TensorDescriptor.from_tensor(o, blocks), BLOCK=32)
    return o


def _branches(p: torch.Tensor, x: torch.Tensor) -> Any:
    return torch.cond(p.sum() > 0, lambda x: x.sin() + 1, lambda x: torch.relu(x).cos(), (x,))


def _loop(i: torch.Tensor, x: torch.Tensor) -> Any:
    return while_loop(lambda i, x: i.sum() < 5, lambda i, x: (i + 1, x.sin()), (i, x))


@torch.compiler.nested_compile_region
def _block(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.relu(x @ y) + x, -1)


def _regions(x: torch.Tensor, y: torch.Tensor) -> Any:
    return _block(_block(x, y) + 1, y).sum(0)


def _operators(x: torch.Tensor, i: torch.Tensor) -> Any:
    return x.index_put((i,), x[0], accumulate=True), torch.nonzero(x[0, 0]), torch.topk(x, 3)[0]


def _on_a_side_stream(exported: Any) -> None:
    """Puts the product, and what it is made from, on a stream of its own, as `with stream:` in a model does."""
    graph, streams = exported.graph_module.graph, torch.ops.streams
    aten = torch.ops.aten
    side = [n for n in graph.nodes if n.target in (aten.relu.default, aten.mm.default, aten.matmul.default)]
    with graph.inserting_before(side[0]):
        before = graph.call_function(streams.record_event.default, (0, 0))
        entered = graph.call_function(streams.wait_event.default, (0, SIDE))
    with graph.inserting_after(side[-1]):
        after = graph.call_function(streams.wait_event.default, (1, 0))
        left = graph.call_function(streams.record_event.default, (1, SIDE))
    for node in (before, entered, after, left):
        node.meta["val"] = None
    for node in (*side, entered, left):
        node.meta["custom"] = {"stream": SIDE}
    exported.graph_module.recompile()


def on_their_streams(exported: Any) -> None:
    """Puts what stands between the wait of a side stream and its next record on that stream, as `with stream:` does."""
    streams, side = torch.ops.streams, 0
    for node in exported.graph_module.graph.nodes:
        if node.target is streams.wait_event.default and node.args[1] != 0:
            side = node.args[1]
        if side and node.op == "call_function":
            node.meta["custom"] = {"stream": side}
        if node.target is streams.record_event.default and node.args[1] == side:
            side = 0


def _record(event: int, stream: int) -> None:
    torch.ops.streams.record_event(event, stream)


def _wait(event: int, stream: int) -> None:
    torch.ops.streams.wait_event(event, stream)


def _fork_join(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A product on stream 1 beside a kernel on the stream of the call."""
    a = torch.relu(x)
    _record(2, 0)
    _wait(2, 1)
    b = a @ y
    _record(3, 1)
    c = y.sin() + 1
    _wait(3, 0)
    return b + c


def _pipeline(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A product on stream 1, then one on stream 2, then a kernel on the stream of the call."""
    a = torch.relu(x)
    _record(3, 0)
    _wait(3, 1)
    b = a @ y
    _record(4, 1)
    _wait(4, 2)
    c = b @ y
    _record(5, 2)
    d = a.sin().sum(0)
    _wait(5, 0)
    return c + d


def _two_branches(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Products on two streams, which write two parts of one buffer."""
    a = torch.relu(x)
    _record(3, 0)
    _wait(3, 1)
    b = a @ y
    _record(4, 1)
    _wait(3, 2)
    c = y @ a
    _record(5, 2)
    _wait(4, 0)
    _wait(5, 0)
    return torch.cat([b, c], 1).tanh()


def _there_and_back(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Stream 1 works twice; each time it waits, and is waited for."""
    a = torch.relu(x)
    _record(2, 0)
    _wait(2, 1)
    b = a @ y
    _record(3, 1)
    _wait(3, 0)
    c = b.tanh()
    _record(4, 0)
    _wait(4, 1)
    d = c @ y
    _record(5, 1)
    _wait(5, 0)
    return d + c


def _side_kernels(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A kernel of Inductor's own between two products on stream 1."""
    a = torch.relu(x)
    _record(2, 0)
    _wait(2, 1)
    b = ((a @ y).tanh() + 1) @ y
    _record(3, 1)
    _wait(3, 0)
    return b.sin() + a


def _square() -> torch.Tensor:
    return torch.randn(64, 64)


def cases() -> dict[str, Case]:
    """The models by name."""
    two = (_square(), _square())
    return {
        "branches": Case(_branches, (torch.randn(4), _square())),
        "first_run": Case(_several, two, FIRST_RUN, strict=True),
        "first_run_with_sources": Case(_several, two, FIRST_RUN, strict=True, with_sources=True),
        "first_run_descriptors": Case(_double, (_square(),), FIRST_RUN, strict=True),
        "loop": Case(_loop, (torch.zeros(1, dtype=torch.int64), _square())),
        "operators": Case(
            _operators, (torch.randn(2, 4, 64, 64, dtype=torch.float16), torch.zeros(3, dtype=torch.int64))
        ),
        "overlapping": Case(lambda x, y: torch.softmax(torch.relu(x @ y), -1).sum(0), two, {"triton.enable_pdl": True}),
        "own_kernel": Case(_add, two, strict=True),
        "regions": Case(_regions, two, strict=True),
        "profiled": Case(lambda x, y: torch.relu(x @ y) + 1, two, PROFILED),
        "profiled_in_contexts": Case(
            lambda x, y: torch.relu(x @ y) + 1, two, {**PROFILED, "cpp.enable_kernel_context_guard": True}
        ),
        "streams": Case(lambda x, y: (torch.relu(x) @ y, y.sin().sum(0)), two, change=_on_a_side_stream),
        "streams_fork_join": Case(_fork_join, two, change=on_their_streams),
        "streams_pipeline": Case(_pipeline, two, change=on_their_streams),
        "streams_pools": Case(_pipeline, two, {"memory_planning": True}, change=on_their_streams),
        "streams_side_kernels": Case(_side_kernels, two, change=on_their_streams),
        "streams_there_and_back": Case(_there_and_back, two, change=on_their_streams),
        "streams_two_branches": Case(_two_branches, two, change=on_their_streams),
        "tensor_descriptors": Case(_double, (_square(),), strict=True),
    }


def store(name: str) -> None:
    """Stores the excerpt of a model."""
    case = cases()[name]
    with with_sources() if case.with_sources else nullcontext():
        files = generated(
            Model(case.function), case.inputs, settings=case.settings, strict=case.strict, change=case.change
        )
    excerpts.store(f"torch_{torch.__version__.partition('+')[0]}_{name}", files)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or cases():
        store(chosen)
