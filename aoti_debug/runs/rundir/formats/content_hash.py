"""The content hash of a tensor's bytes, as runtime_shims/formats/content_hash.h defines it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_STEP = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def content_hash(data: bytes) -> int:
    """The 64-bit hash of the elements of a tensor, row-major without gaps."""
    import numpy as np

    words = np.frombuffer(data + bytes(-len(data) % 8), "<u8")
    terms = _mix(words + np.arange(1, len(words) + 1, dtype="u8") * np.uint64(_STEP))
    total = (int(np.add.reduce(terms, dtype="u8")) + len(data)) & _MASK
    return int(_mix(np.array([total], dtype="u8"))[0])


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    import numpy as np

    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed
