"""An operator that does what the variable FAULTY_OPS says (`--import tests.faulty_ops`)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable

import torch


def _raise() -> None:
    raise ValueError("the answer is not 42\nand there is more to say")


def _raise_once() -> None:
    """Raises in the first process; others find its file in their directory."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open("raised", os.O_CREAT | os.O_EXCL))
        _raise()


ACTIONS: dict[str, Callable[[], object]] = {
    "": lambda: None,
    "segv": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "raise": _raise,
    "raise once": _raise_once,
    "hang": lambda: time.sleep(600),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(7),
    "write": lambda: os.write(1, b"to stdout\n"),
}


# Not by `custom_op`: at its first call in each process, which may be its end, that imports all of torch's compiler.
torch.library.define("faulty::act", "(Tensor x) -> Tensor")


@torch.library.impl("faulty::act", "CPU")
def act(x: torch.Tensor) -> torch.Tensor:
    ACTIONS[os.environ.get("FAULTY_OPS", "")]()
    return x + 1


@torch.library.register_fake("faulty::act")
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Model(torch.nn.Module):
    """Four launches; the third one is the operator."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.ops.faulty.act(torch.relu(self.linear(x))), -1)
