"""The number of threads that torch computes with, after the size of the tensors. Runs in a child process.

Threads wait for each other after every operator. Of small tensors that takes longer than computing; on a machine that
other processes use as well, ten times as long.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from aoti_debug.compare.protocol.request import KnownValue

_LARGE = 1 << 20  # bytes of a tensor's file


@contextlib.contextmanager
def threads_for(values: Iterable[KnownValue]) -> Iterator[None]:
    """Inside the `with`, torch computes in one thread unless one of the recorded tensors is large."""
    import torch

    usual = torch.get_num_threads()
    recorded = (tensor for value in values for tensor in (value.recorded, *value.parts))
    is_large = any(_size(tensor.path) >= _LARGE for tensor in recorded)
    torch.set_num_threads(usual if is_large else 1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def _size(path: str) -> int:
    """The size of a file in bytes; 0 if it is missing: reading it says so."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_size
    return 0
