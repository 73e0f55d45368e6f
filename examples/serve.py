"""Several ranks that call one package, whose model sums over them. One rank has another weight, and one is killed.

usage:
    python serve.py export ranks.pt2
    PYTHONPATH=. aoti-debug build ranks.pt2 --import serve
    torchrun --nproc-per-node 4 serve.py ranks.instrumented.pt2
"""

from __future__ import annotations

import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn

KILLED, IN_CALL = "2", 1
ODD = "1"
_calls = 0


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.ops.demo.step(torch.relu(self.first(x)))
        total = collectives.all_reduce(self.second(hidden), "sum", "0")
        return torch.softmax(total.sin(), -1)


def step(x: torch.Tensor) -> torch.Tensor:
    global _calls
    if os.environ.get("RANK") == KILLED and _calls == IN_CALL:
        os.kill(os.getpid(), signal.SIGKILL)
    _calls += 1
    return x + 1


def join() -> None:
    """Joins the ranks of torchrun; a process that only exports or builds, a group that does nothing."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())


def serve(package: str) -> None:
    model = torch._inductor.aoti_load_package(package)
    if os.environ["RANK"] == ODD:
        model.load_constants({"second.weight": Model().second.weight.detach() * 2}, check_full_update=False)
    with torch.no_grad():
        for _ in range(3):
            model(torch.linspace(-1, 1, 32).reshape(4, 8))


def main(words: list[str]) -> None:
    if words[0] == "export":
        torch.export.save(torch.export.export(Model().eval(), (torch.ones(4, 8),)), words[1])
    else:
        serve(words[0])


torch.library.custom_op("demo::step", step, mutates_args=()).register_fake(torch.empty_like)
join()
if __name__ == "__main__":
    main(sys.argv[1:])
