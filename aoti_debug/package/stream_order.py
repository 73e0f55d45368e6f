"""The order of launches on several streams, and the races between them, as the manifest holds them."""

from __future__ import annotations

from aoti_debug.base.frozen import dataclass


@dataclass(frozen=True)
class Racer:
    """A side of a race.

    Attributes:
        site: of the launch; -1: the caller of the model.
        stream: that it runs on: 0 the call's.
        argument: the tensor, as the launch names it.
        does: "reads", "writes", "reads and writes", "may write".
    """

    site: int
    stream: int
    argument: str
    does: str


@dataclass(frozen=True)
class Race:
    """Two launches that touch the same memory, at least one of them writing, which no event orders.

    Attributes:
        first: the one that the host starts first.
        memory: the variable that owns the memory: "buf3".
        missing: the order that is missing, in words: "no event is recorded on stream 1 between them".
        bytes: of the memory, from the first to behind the last, that both may touch; None if that is not known.
        doubt: why it may be none: what is not known; "" if it is one.
    """

    first: Racer
    second: Racer
    memory: str
    missing: str
    doubt: str = ""
    bytes: tuple[int, int] | None = None


@dataclass(frozen=True)
class StreamOrder:
    """The order of launches on several streams, as far as the text of a wrapper tells it.

    Attributes:
        streams: the numbers of the side streams.
        races: in the order of their second launches; those without doubt, then those with one.
        undecided: what is not known, a sentence each.
    """

    streams: tuple[int, ...]
    races: tuple[Race, ...]
    undecided: tuple[str, ...] = ()
