"""GPUs of the machine that a launch ran on, and those of this one."""

from __future__ import annotations

import torch


def present(name: str) -> str:
    """A device, or the first GPU for one that is not here. Where there are none at all it keeps its name.

    Args:
        name: as torch writes it: "cpu", "cuda:1".
    """
    index = torch.device(name).index or 0
    return "cuda:0" if name.startswith("cuda") and index >= torch.cuda.device_count() > 0 else name
