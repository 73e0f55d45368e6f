"""Maps GPUs of the machine that a launch ran on to those of this one."""

from __future__ import annotations

import torch


def available_device(name: str) -> str:
    """Returns the device itself, or the first GPU in place of one that this machine lacks. Without any GPU: the name.

    Args:
        name: as torch writes it: "cpu", "cuda:1".
    """
    index = torch.device(name).index or 0
    return "cuda:0" if name.startswith("cuda") and index >= torch.cuda.device_count() > 0 else name
