"""The statements of a generated kernel, Triton or C++, as far as values flow through them.

Both languages come out alike: a statement gives one or more variables a value made of other names, or stores a value
to memory. Index arithmetic, masks and comparisons carry no value: what they yield can be neither NaN nor infinite.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Statement:
    """
    Attributes:
        targets: the variables that get a value, or the pointer that is stored to.
        store: whether it writes to memory.
        names: what the value is made of: variables, and pointers that are read.
        infinities: signs of the infinite constants in it (1, -1), other than those that a reduction begins with.
        flips: it may turn the sign of a value.
        value: the stored or assigned expression, in Python's syntax; "" where it is none.
        text: as the source has it, in one line.
        line: in the kernel's source, from 1.
        tail: it repeats another statement for the elements that fill no vector.
    """

    targets: tuple[str, ...]
    store: bool
    names: frozenset[str]
    infinities: frozenset[int]
    flips: bool
    value: str
    text: str
    line: int
    tail: bool = False
