"""The ranks of a distributed program: which one this process is, and which ones an option names."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass

VARIABLE = "RANK"  # set by torchrun

_RANKS = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*\Z", re.ASCII)

MAX_RANKS = 1 << 16  # ranks of a launch


@dataclass(frozen=True)
class Rank:
    """A process that is one of many ranks, as the environment says; torchrun sets all of it.

    Attributes:
        number: from 0.
        world_size: the number of ranks.
        local_rank, local_world_size: the rank and the number of ranks on this machine; 0 if they are not said.
        run_id, master, restart: what tells launches apart: torchrun's --rdzv-id, ADDRESS:PORT, the count of restarts.
    """

    number: int
    world_size: int
    local_world_size: int = 0
    run_id: str = ""
    master: str = ":"
    restart: str = ""
    local_rank: int = 0


def of_environment(environment: Mapping[str, str] | None = None) -> Rank | None:
    """The rank that the variables name; None where there are no other ranks.

    Args:
        environment: None for this process's.
    """
    variables = os.environ if environment is None else environment
    number, world_size = _number(variables.get(VARIABLE)), _number(variables.get("WORLD_SIZE"))
    if number is None or world_size is None or world_size < 2 or number >= world_size:
        return None
    return Rank(
        number,
        world_size,
        _number(variables.get("LOCAL_WORLD_SIZE")) or 0,
        variables.get("TORCHELASTIC_RUN_ID", ""),
        f"{variables.get('MASTER_ADDR', '')}:{variables.get('MASTER_PORT', '')}",
        variables.get("TORCHELASTIC_RESTART_COUNT", ""),
        _number(variables.get("LOCAL_RANK")) or 0,
    )


def visible_gpus(rank: Rank, visible: str | None) -> str | None:
    """The GPU of a rank, for CUDA_VISIBLE_DEVICES: each rank of a machine gets its own; None to leave them as they are.

    Args:
        visible: that variable now; None if it is not set.
    """
    if rank.local_world_size < 2:
        return None
    if visible is None:
        return str(rank.local_rank)
    devices = visible.split(",")
    return devices[rank.local_rank] if len(devices) >= rank.local_world_size else None


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[0-9]{1,9}", text) else None


def current() -> int:
    """The rank of this process in torch.distributed, or else in the environment; 0 in a program that has none."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return _number(os.environ.get(VARIABLE)) or 0


def selected(ranks: Collection[int] | None) -> bool:
    """True if this process is one of these ranks; None means all."""
    return ranks is None or current() in ranks


def parse(text: str) -> frozenset[int] | None:
    """The ranks of an option: "0,2-3"; None for "".

    Raises:
        UsageError: the text is not numbers and ranges with commas between them, or a range goes backwards.
    """
    if not text:
        return None
    pairs = [part.partition("-") for part in text.split(",")] if _RANKS.match(text) else []
    ranges = [range(int(first), int(last or first) + 1) for first, _, last in pairs]
    if not ranges or not all(ranges):
        raise UsageError(f"--ranks {text} is not numbers with commas between them", hint="--ranks 0,2-3")
    if max(part.stop for part in ranges) > MAX_RANKS:
        raise UsageError(f"--ranks {text} goes beyond rank {MAX_RANKS - 1}", hint="--ranks 0,2-3")
    return frozenset(number for part in ranges for number in part)
