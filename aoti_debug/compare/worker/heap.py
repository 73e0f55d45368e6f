"""Freed memory of the process that evaluates regions, which is kept for the next tensors. Runs in a child process.

Otherwise glibc returns the memory of each larger tensor to the system, and the next one of that size is made of new
pages, which the system clears one by one.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>
_KEPT = 128 << 20  # bytes
_LARGEST = 32 << 20  # bytes of a tensor; glibc accepts no more


def keep_freed_memory() -> None:
    """Has malloc keep what is freed; does nothing with another libc than glibc."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_MMAP_THRESHOLD, _LARGEST)
        libc.mallopt(_TRIM_THRESHOLD, _KEPT)
