"""The heap of this process: what malloc has given out and not got back."""

from __future__ import annotations

import ctypes


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


_mallinfo2 = ctypes.CDLL(None).mallinfo2
_mallinfo2.restype = _Mallinfo2


def held_bytes() -> int:
    """Bytes in all arenas and in mappings of their own.

    Unlike resident memory they do not change with the pages of mapped files and of freed chunks that are in memory.
    """
    found = _mallinfo2()
    return int(found.uordblks + found.hblkhd)
