"""Runs of ranks as data: what each rank recorded of a model with a collective."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aoti_debug.base.abi import FaultDomain, Phase
from aoti_debug.base.native import crash_stacks
from aoti_debug.package.manifest import Constant, Manifest, ProxyArgument, Role
from aoti_debug.runs.ranks.ranks_run import RanksRun, open_ranks
from aoti_debug.runs.rundir import ranks_directory
from aoti_debug.runs.rundir.ranks_directory import RanksInfo
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RankInfo
from tests.factories import JournalWriter, arg, in_home, make_manifest, run_directory, site, tensor

REDUCE, WAIT = "aoti_torch_cpu__c10d_functional_all_reduce_", "aoti_torch_cpu__c10d_functional_wait_tensor"
NOBODY = 4194304  # no process has this number
HERE = socket.gethostname()
X, W, Y, Z = (tensor(4, 4, data_ptr=address) for address in (0x1000, 0x2000, 0x3000, 0x4000))
SECOND = 1_000_000_000


def manifest(weight: Sequence[int] = (4, 4), group: str = "0", device: str = "cpu") -> Manifest:
    """Four launches a call: a product with a weight, the sum over the ranks, the wait for it, another kernel."""
    made = make_manifest(
        site("mm", arg("buf0", Role.OUT), arg("x"), arg("layer_weight")),
        site(
            REDUCE,
            arg("buf0", Role.INOUT),
            operands=(ProxyArgument("group_name", False, json.dumps({"as_string": group})),),
        ),
        site(WAIT, arg("buf0")),
        site("softmax", arg("buf0"), arg("buf1", Role.OUT)),
        device=device,
    )
    constant = Constant("layer_weight", "layer.weight", "float32", tuple(weight), (4, 1), folded=False)
    return Manifest(**{**vars(made), "constants": (constant,), "source_sha256": "one program"})


@dataclass
class Rank:
    """The records of one rank.

    Attributes:
        calls: of the model, that end.
        stops: the launch of the next call that it is in when it ends; None: it is in none.
        fault: an exception that leaves that launch.
        ends: the journal says that the package was unloaded.
        signal: that the process wrote down, and when, in seconds from the start of the journal.
        thread: that the signal came in; its launches run in thread 1.
        clock: by how many seconds its clock is ahead.
        late: the seconds between its last call that ended and the one that did not.
        hashes: of the weight and of the sum.
        replays: of the CUDA graph that captured each call; 0: none did.
        skipped: launches of a call that it does not have.
        exit: as run.json says it.
    """

    calls: int = 2
    stops: int | None = None
    fault: str = ""
    ends: bool = True
    signal: tuple[int, float] | None = None
    thread: int = 1
    machine: str = HERE
    clock: float = 0.0
    late: float = 0.0
    hashes: tuple[int, int] = (1, 2)
    replays: int = 0
    skipped: tuple[int, ...] = ()
    exit: Exit = field(default_factory=lambda: Exit(ExitKind.RUNNING))


def killed(stops: int | None, **fields: Any) -> Rank:
    """A rank that disappeared in a launch of its second call."""
    return Rank(calls=1, stops=stops, ends=False, **fields)


def terminated(stops: int | None, after: float = 9.0, **fields: Any) -> Rank:
    """A rank that torchrun ended in a launch of its second call."""
    return Rank(calls=1, stops=stops, ends=False, signal=(15, after), **fields)


def threw(stops: int, **fields: Any) -> Rank:
    """A rank whose second call ended with an exception."""
    return Rank(calls=1, stops=stops, fault="RuntimeError: no", **fields)


def opened(base: Path, *ranks: Rank | None, weight: Sequence[int] = (4, 4)) -> RanksRun:
    """Writes and opens a run of ranks; None is one that left nothing."""
    path = in_home(base) / "20261120-231501-1"
    path.mkdir(parents=True)
    (path / ranks_directory.NAME).write_text(ranks_directory.ranks_json(RanksInfo(len(ranks))))
    for number, rank in enumerate(ranks):
        if rank is not None:
            write_rank(path, number, len(ranks), rank)
    return open_ranks(path)


def write_rank(path: Path, number: int, world_size: int, rank: Rank, package: Manifest | None = None) -> Path:
    """Writes the run directory of a rank."""
    writer = JournalWriter(level=2, pid=NOBODY)
    writer.start_unix_ns += int(rank.clock * SECOND)
    for call in range(rank.calls + (rank.stops is not None)):
        writer.time_ns += int(rank.late * SECOND) if call == rank.calls else 0
        _call(writer, call, rank, rank.stops if call == rank.calls else None)
    if rank.ends:
        writer.run_end()
    place = RankInfo(number, world_size, rank.machine)
    info: dict[str, Any] = {"pid": NOBODY, "host": "embedded", "rank": place, "exit": rank.exit}
    run = run_directory(path, package or manifest(), writer, name=f"rank{number}", latest=False, **info)
    if rank.signal is not None:
        name, after = rank.signal
        when = writer.start_unix_ns + int(after * SECOND)
        thread = rank.thread
        caught = f"thread {thread} signal {name} code 0 address 0x0 pc 0x1 caller 0x2"
        (run / crash_stacks.STACKS).write_text(f"{caught}\ntime {thread} {when}\nframes {thread} 0x1\n")
    return run


def _call(writer: JournalWriter, call: int, rank: Rank, stops: int | None) -> None:
    weight, total = rank.hashes
    replay = (rank.replays, rank.replays) if rank.replays else None
    values = ((Y, X, W), (Y,), (Y,), (Y, Z))
    writer.call_begin(call)
    for launch in range(4):
        if launch in rank.skipped:
            continue
        writer.launch_begin(launch, launch, *values[launch], call=call)
        if launch == 0:
            writer.tensor_stats(
                launch, 2, Phase.BEFORE, _statistics(), layout=W.layout, call=call, content=weight, replay=replay
            )
        if launch == stops:
            break
        if launch == 2:
            writer.tensor_stats(
                launch, 0, Phase.AFTER, _statistics(), layout=Y.layout, call=call, content=total, replay=replay
            )
        writer.launch_end(launch, call=call)
    if stops is not None and rank.fault:
        writer.fault(stops, FaultDomain.EXCEPTION, -1, rank.fault, call=call)
    if stops is None or rank.fault:
        writer.call_end(call, launches=4, failed=stops is not None)


def _statistics() -> Any:
    from tests.factories import statistics

    return statistics(numel=16)
