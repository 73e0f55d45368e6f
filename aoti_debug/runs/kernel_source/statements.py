"""The statements of a generated kernel, Triton or C++, reduced to the flow of values.

Both languages have the same form: a statement assigns a value computed from other names to one or more variables, or
stores a value to memory. Index arithmetic, masks and comparisons are left out: their results are never NaN or infinite.
"""

from __future__ import annotations

from aoti_debug.base.frozen import dataclass


@dataclass(frozen=True)
class Statement:
    """An assignment or a store.

    Attributes:
        targets: the variables that get a value, or the pointer that is stored to.
        store: true if it writes to memory.
        names: the variables, and the pointers read, that the value is computed from.
        infinities: the signs (1, -1) of its infinite constants, without the initial values of reductions.
        negates: true if it may change the sign of a value.
        value: the stored or assigned expression in Python's syntax; "" if it has no such form.
        text: the source text, in one line.
        line: the line in the kernel's source, from 1.
        tail: true if it repeats another statement for the remaining elements that fill no vector.
    """

    targets: tuple[str, ...]
    store: bool
    names: frozenset[str]
    infinities: frozenset[int]
    negates: bool
    value: str
    text: str
    line: int
    tail: bool = False
