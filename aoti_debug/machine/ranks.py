"""The ranks of a distributed program: which one this process is."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection

from aoti_debug.errors import UsageError

VARIABLE = "RANK"  # set by torchrun

_RANKS = re.compile(r"\d+(,\d+)*\Z", re.ASCII)


def current() -> int:
    """The rank of this process in torch.distributed, or else in the environment; 0 in a program that has none."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    text = os.environ.get(VARIABLE, "")
    return int(text) if text.isdecimal() else 0


def selected(ranks: Collection[int] | None) -> bool:
    """True if this process is one of these ranks; None means all."""
    return ranks is None or current() in ranks


def parse(text: str) -> frozenset[int] | None:
    """The ranks of an option: "0,1"; None for "".

    Raises:
        UsageError: the text is not numbers with commas between them.
    """
    if not text:
        return None
    if not _RANKS.match(text):
        raise UsageError(f"--ranks {text} is not numbers with commas between them", hint="--ranks 0,1")
    return frozenset(map(int, text.split(",")))
