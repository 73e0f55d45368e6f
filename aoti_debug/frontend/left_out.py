"""Parts of Inductor that a program is lowered with, and without: for finding the one that is wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Applied:
    """The parts of Inductor that a program was lowered with, each once, in order.

    Attributes:
        passes: names of graph passes that can be left out with the setting `disabled_passes`.
        decompositions, lowerings: operators that were decomposed, or lowered, "aten.silu.default", and that can be
            called as they are.
    """

    passes: tuple[str, ...] = ()
    decompositions: tuple[str, ...] = ()
    lowerings: tuple[str, ...] = ()


@dataclass(frozen=True)
class LeftOut:
    """Operators that are called as they are.

    Attributes:
        decompositions, lowerings: those that are not decomposed, and those that are not lowered.
        log: a file for what is applied, an `Applied` as JSON; "" for none.
    """

    decompositions: tuple[str, ...] = ()
    lowerings: tuple[str, ...] = ()
    log: str = ""
