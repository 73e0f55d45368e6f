"""Fills the memory that torch gives to operators. Runs in a child process."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def fresh_memory_filled() -> Iterator[None]:
    """Inside the `with`, torch.empty and its like give NaN, and the largest integer.

    torch does so where deterministic algorithms are wanted: torch.utils.deterministic.fill_uninitialized_memory.
    """
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about operators that have no deterministic algorithm
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)
