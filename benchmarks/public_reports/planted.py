"""Faults of torch that the version at hand does not have (any more): `--import public_reports.planted`.

AOTI_PUBLIC_REPORT names one; each replaces a part of torch in the process that imports this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable

VARIABLE = "AOTI_PUBLIC_REPORT"


def _zero_for_small(name: str) -> Callable[[], None]:
    """A function that is 0 where it should be its small argument."""

    def plant() -> None:
        import torch
        from torch._inductor import lowering
        from torch._inductor.virtualized import ops

        right = lowering.lowerings[getattr(torch.ops.aten, name).default]
        small = lowering.make_pointwise(
            lambda x, y: ops.where(
                ops.lt(ops.abs(x), ops.constant(1e-6, torch.float32)), ops.constant(0.0, torch.float32), y
            )
        )
        lowering.lowerings[getattr(torch.ops.aten, name).default] = lambda x: small(x, right(x))

    return plant


PLANTS: dict[str, Callable[[], None]] = {
    "small tanh is 0": _zero_for_small("tanh"),
}
if os.environ.get(VARIABLE):
    PLANTS[os.environ[VARIABLE]]()
