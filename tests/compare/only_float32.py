"""Operators that add 1: one refuses float64, one lacks a CPU kernel, one aborts.

`--import tests.compare.only_float32`
"""

from __future__ import annotations

import torch

LIBRARY = torch.library.Library("only", "DEF")
LIBRARY.define("add_one(Tensor x) -> Tensor")
LIBRARY.define("nowhere(Tensor x) -> Tensor")
LIBRARY.define("dies(Tensor x) -> Tensor")


def add_one(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.float64:
        raise NotImplementedError("add_one is not implemented for float64")
    return x + 1


def dies(x: torch.Tensor) -> torch.Tensor:
    import os

    os.abort()


LIBRARY.impl("add_one", add_one, "CPU")
LIBRARY.impl("nowhere", lambda x: x, "Meta")
LIBRARY.impl("dies", dies, "CPU")
