"""A model of several ranks: an operator that fails on one of them, an all-reduce (`--import tests.rank_model`).

Importing this module joins the process group: that of RANK_BACKEND (gloo) among the ranks of torchrun, and one that
does nothing for building. `python -m tests.rank_model PACKAGE CALLS` is a rank's program; RANK_WEIGHTS=RANK doubles a
weight there.

RANK_FAULT=RANK:CALL:ACTION makes the operator act on that rank in that call.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives

WORLD_SIZE = 4  # of the program that is exported; the generated code does not depend on it


def join() -> None:
    """Joins the process group of the environment, or without one a group that does nothing."""
    if dist.is_initialized():
        return
    if "RANK" in os.environ:
        timeout = timedelta(seconds=float(os.environ.get("RANK_TIMEOUT", "600")))
        dist.init_process_group(os.environ.get("RANK_BACKEND", "gloo"), timeout=timeout)
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=WORLD_SIZE, store=FakeStore())


def leave() -> None:
    """Leaves the process group that this process is in."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _read_out_of_bounds() -> None:
    """Asks the device for an element that its tensor has not: the device notices it later."""
    table = torch.ones(4, device="cuda")
    table[torch.full((1,), 1 << 20, device="cuda")]


def _throw() -> None:
    raise ValueError("the answer is not 42")


ACTIONS: dict[str, Callable[[], object]] = {
    "fault": lambda: ctypes.string_at(0),
    "throw": _throw,
    "hang": lambda: time.sleep(600),
    "device": _read_out_of_bounds,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}
_calls = 0


def act(x: torch.Tensor) -> torch.Tensor:
    """x + 1, unless RANK_FAULT says something else for this rank and call."""
    global _calls
    rank, call, action = os.environ.get("RANK_FAULT", "-1:0:").split(":")
    if rank == os.environ.get("RANK") and int(call) == _calls:
        ACTIONS[action]()
    _calls += 1
    return x + 1


class Model(torch.nn.Module):
    """Two layers, the operator, and a sum over the ranks."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.ops.aotidebugranks.act(torch.relu(self.first(x)))
        total = collectives.all_reduce(self.second(hidden), "sum", "0")
        return torch.softmax(total.sin(), -1)


def inputs(device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """The example inputs."""
    return (torch.linspace(-1, 1, 32, device=device).reshape(4, 8),)


def program(device: str = "cpu") -> torch.export.ExportedProgram:
    """The exported program."""
    return torch.export.export(Model().eval().to(device), inputs(device))


def main(package: str, calls: str) -> None:
    """Calls the package as a rank."""
    device, index = "cpu", -1
    if dist.get_backend() == "nccl":
        index = int(os.environ["LOCAL_RANK"])
        device = f"cuda:{index}"
        torch.cuda.set_device(index)
    # The loader of C++: that of Python imports torch's compiler.
    model = torch._C._aoti.AOTIModelPackageLoader(package, "model", False, 1, index)
    if os.environ.get("RANK_WEIGHTS") == os.environ["RANK"]:
        model.load_constants(
            {"second.weight": 2 * Model().second.weight.detach().to(device)},
            use_inactive=False,
            check_full_update=False,
        )
    with torch.no_grad():
        for _ in range(int(calls)):
            model.boxed_run(list(inputs(device)))[0].cpu()
    dist.destroy_process_group()


if __name__ == "__main__":
    from tests import rank_model  # the operator is registered there, once

    rank_model.main(*sys.argv[1:])
else:
    # Not by `custom_op`: at its first call in each process, that imports all of torch's compiler.
    torch.library.define("aotidebugranks::act", "(Tensor x) -> Tensor")
    torch.library.impl("aotidebugranks::act", ("cpu", "cuda"), act)
    torch.library.register_fake("aotidebugranks::act", torch.empty_like)
    join()
