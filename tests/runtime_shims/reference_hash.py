"""The content hash of runtime_shims/formats/content_hash.h, as its comment defines it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

STEP = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


def content_hash(data: bytes, step: int = STEP) -> int:
    words = np.frombuffer(data + bytes(-len(data) % 8), "<u8")
    terms = _mix(words + np.arange(1, len(words) + 1, dtype="u8") * np.uint64(step))
    total = (int(np.add.reduce(terms, dtype="u8")) + len(data)) & MASK
    return int(_mix(np.array([total], dtype="u8"))[0])
