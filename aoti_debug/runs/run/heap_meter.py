"""Counts the bytes that are allocated around each launch, in the process of a model."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

from aoti_debug.runs.rundir.memory_file import LaunchHeap
from aoti_debug.runs.rundir.run_directory import parse_launch_id

WARM_UP = 2  # calls, at the beginning, that fill caches
_KEPT_CALLS = 32  # per launch; longer lists would take memory from the heap that is measured


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "k")
    )


class LaunchHeapMeter:
    """Counts the allocated bytes around launches. An inspector calls it on the tensors of each launch.

    Args:
        torch: the module.
        device: "cpu", for what malloc has handed out, or "cuda", for what torch's allocator has.
        calls: how many there will be; the last one is not counted, as a profiler takes memory in it.
    """

    def __init__(self, torch: Any, device: str, calls: int) -> None:
        self._of_malloc = _of_malloc()
        self._allocated = torch.cuda.memory_allocated if device == "cuda" else self._of_malloc
        self._last = calls - (device != "cuda")
        self._before: dict[str, int] = {}
        self._grown: dict[int, deque[int]] = {}

    @property
    def is_possible(self) -> bool:
        """False where this system does not count what is allocated."""
        return self._allocated is not None

    def heap(self) -> int:
        """The bytes that malloc has handed out and not got back; 0 where the C library does not tell."""
        return 0 if self._of_malloc is None else self._of_malloc()

    def __call__(self, tensor: Any, launch: Any) -> None:
        """Reads the count: the last one before a launch and the first one after it stay."""
        del tensor
        assert self._allocated is not None
        key = parse_launch_id(launch.id)
        if not WARM_UP <= key.call < self._last:
            return
        if launch.phase == "before":
            self._before[launch.id] = self._allocated()
        elif (before := self._before.pop(launch.id, None)) is not None:
            grown = self._allocated() - before
            self._grown.setdefault(key.launch, deque(maxlen=_KEPT_CALLS)).append(grown)

    def grown(self) -> tuple[LaunchHeap, ...]:
        """By how much the count was larger after each launch than before it."""
        return tuple(
            LaunchHeap(launch, int(median(grown)), min(grown), len(grown))
            for launch, grown in sorted(self._grown.items())
        )


def _of_malloc() -> Callable[[], int] | None:
    """Counts the bytes that malloc has handed out and not got back; None where the C library does not tell."""
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is None:
        return None
    function.restype = _MallocInfo

    def allocated() -> int:
        info = function()
        return int(info.uordblks + info.hblkhd)

    return allocated
