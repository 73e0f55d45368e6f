"""An operator in Python that waits for what never comes, as the variable PLANTED says, for hangs.py."""

from __future__ import annotations

import os
import queue
import threading

import torch
import torch.distributed

LOCK = threading.Lock()


def python_queue() -> None:
    queue.Queue[int]().get()


def python_lock() -> None:
    LOCK.acquire()
    LOCK.acquire()


def collective() -> None:
    """The other rank waits for something else."""
    store = f"{os.environ['PLANTED_FILE']}.{os.getpid()}"
    if os.fork() == 0:
        join(1, store)
        torch.distributed.recv(torch.ones(1), src=0)
        os._exit(0)
    join(0, store)
    torch.distributed.all_reduce(torch.ones(1))


def join(rank: int, store: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)


HANGS = {"python queue": python_queue, "python lock": python_lock, "collective": collective}

torch.library.define("hangs::stay_in_python", "(Tensor x) -> Tensor")


@torch.library.impl("hangs::stay_in_python", "CPU")
def stay(x: torch.Tensor) -> torch.Tensor:
    HANGS.get(os.environ.get("PLANTED", ""), lambda: None)()
    return x.clone()


@torch.library.register_fake("hangs::stay_in_python")
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
