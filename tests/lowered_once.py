"""Lowers a small program when it is imported: processes forked afterwards find what torch's compiler makes but once.

That is its patterns of graphs, the hash of Triton's files and what it imports late: half of what a small model takes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from filelock import FileLock
from torch import Tensor, nn
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import find_torch
from aoti_debug.instrument.frontend import exported_program, worker_process
from aoti_debug.instrument.frontend.protocol.messages import Request


class Model(nn.Module):
    """A matrix product, a generated kernel, an operator behind the proxy executor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.linear(x), 1) @ x


def lower() -> None:
    program = torch.export.export(Model().eval(), (torch.ones(4, 4),))
    with tempfile.TemporaryDirectory() as folder:
        exported_program.lower_in_process(program, Request(program="", folder=folder), find_torch())
    # For processes that compile and load packages without our cache.
    worker_process.link_new(worker_process.shared(find_torch()), Path(default_cache_dir()))


with FileLock(cache.directory() / "lowered-once.lock"):  # the first finds out what the machine can do
    lower()
