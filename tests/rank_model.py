"""A model of several ranks: an operator that fails on one of them, an all-reduce (`--import rank_model`).

Importing this module joins the process group: gloo among the ranks of torchrun, and one that does nothing for building.

RANK_FAULT=RANK:CALL:ACTION makes the operator act on that rank in that call.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
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
        dist.init_process_group("gloo", timeout=timeout)
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=WORLD_SIZE, store=FakeStore())


def leave() -> None:
    """Leaves the process group that this process is in."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _throw() -> None:
    raise ValueError("the answer is not 42")


ACTIONS = {
    "fault": lambda: ctypes.string_at(0),
    "throw": _throw,
    "hang": lambda: time.sleep(600),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}
_calls = 0


@torch.library.custom_op("aotidebugranks::act", mutates_args=())
def act(x: torch.Tensor) -> torch.Tensor:
    """x + 1, unless RANK_FAULT says something else for this rank and call."""
    global _calls
    rank, call, action = os.environ.get("RANK_FAULT", "-1:0:").split(":")
    if rank == os.environ.get("RANK") and int(call) == _calls:
        ACTIONS[action]()
    _calls += 1
    return x + 1


@act.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


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


def program() -> torch.export.ExportedProgram:
    """The exported program."""
    return torch.export.export(Model().eval(), (torch.linspace(-1, 1, 32).reshape(4, 8),))


join()
