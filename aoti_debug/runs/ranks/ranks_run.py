"""A run of ranks, opened for reading: of each rank its run, diagnosis, collectives, and the launch that it came to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cached_property
from pathlib import Path

from aoti_debug.base.abi import CallKind
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.native import crash_stacks
from aoti_debug.base.native.frames import StackFrame
from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Site
from aoti_debug.runs.diagnosis.diagnose import DEATHS
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun, open_diagnosed
from aoti_debug.runs.diagnosis.verdict import Verdict, signal_text
from aoti_debug.runs.rundir import ranks_directory
from aoti_debug.runs.rundir.launch import Launch, LaunchStatus
from aoti_debug.runs.rundir.ranks_directory import RanksInfo, machine_name
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind

_OPERATOR = re.compile(r"_?c10d(_functional)?(_autograd)?(::|\.|_)")
_WAIT = "wait_tensor"
_GROUP = "group_name"
_ALL_RANKS = "0"  # torch.distributed's name of the first group, which holds all ranks
# No rank has such a result before all have entered; the root of a broadcast waits for nobody.
_SYNCHRONOUS = ("all_reduce", "all_gather", "all_to_all")
# Their results are equal on every rank of the group; those of reduce_scatter and all_to_all are not.
_AGREEING = ("all_reduce", "all_gather", "broadcast")
_COLLECTIVE = re.compile(r"\bc10d::|\bgloo::|\bnccl[A-Z]")
_LEAVING = "Py_FinalizeEx"  # the interpreter ends


def is_collective(site: Site) -> bool:
    """True if the launch begins a collective, or waits for its result."""
    return any(_OPERATOR.search(name) for name in (site.kernel, site.op))


def is_wait(site: Site) -> bool:
    """True if the launch waits for the result of a collective that another launch began."""
    return is_collective(site) and _WAIT in site.kernel


def gives_equal_results(site: Site) -> bool:
    """True if the launch begins a collective whose result is the same on every rank."""
    return is_collective(site) and any(name in site.kernel for name in _AGREEING)


def is_synchronous(site: Site) -> bool:
    """True if the launch begins a collective whose result no rank has before all of the group have entered it."""
    return is_collective(site) and any(name in site.kernel for name in _SYNCHRONOUS)


def is_of_all_ranks(site: Site) -> bool:
    """True if the launch begins a collective of all ranks; False of a part of them, or if the group is unknown."""
    for argument in site.args:
        if argument.name == _GROUP:
            return argument.text == f'"{_ALL_RANKS}"'
    return any(o.name == _GROUP and o.value == json.dumps({"as_string": _ALL_RANKS}) for o in site.operands)


def waits(run: RunDir) -> Iterator[tuple[Launch, Launch]]:
    """Yields each launch that waited for a collective, with the one that began it on the same tensor.

    Raises:
        RunDirError: a record of the run cannot be read.
    """
    begun: dict[int, Launch] = {}  # the last collective on a tensor, by its address
    for launch in run.launches:
        if launch.key.kind is not CallKind.MODEL or not is_collective(launch.site):
            continue
        addresses = [a.tensor.data_ptr for a in launch.args if isinstance(a.tensor, Tensor)]
        if not is_wait(launch.site):
            begun.update((address, launch) for address in addresses)
        elif first := next((begun[a] for a in addresses if a in begun), None):
            yield first, launch


@dataclass(frozen=True)
class Outside:
    """The place outside of the package.

    Attributes:
        function: that says most: of torch.distributed, or else the innermost one that has a name.
        is_collective: it is one of torch.distributed: the rank waited for others.
        is_leaving: the interpreter was ending.
    """

    function: str
    is_collective: bool
    is_leaving: bool


def outside(run: RunDir) -> Outside | None:
    """The place by the recorded stack; None if there is none, or it must not be symbolized: the run is untrusted.

    Raises:
        RunDirError: backtrace.json cannot be read.
    """
    backtrace = crash_stacks.read(run.path) or (crash_stacks.decode(run.path) if run.is_made_here else None)
    stack = None if backtrace is None else backtrace.died or next(iter(backtrace.stacks), None)
    named = [frame for frame in stack.frames if frame.function] if stack is not None else []
    if not named:
        return None
    waits = next((frame for frame in named if _COLLECTIVE.search(frame.function)), None)
    return Outside(_name(waits or named[0]), waits is not None, any(f.function == _LEAVING for f in named))


def _name(frame: StackFrame) -> str:
    """The function without its arguments."""
    return frame.function.partition("(")[0]


TERMINATION = "SIGTERM"
SECOND = 1_000_000_000  # ns


class End(str, Enum):
    """The end of a rank's process."""

    FINISHED = "finished"
    CRASHED = "crashed"  # by a signal of its own: SIGSEGV, SIGABRT
    FAILED = "failed"  # an exception, an error of the device, an exit code
    KILLED = "killed"  # by SIGKILL, or it disappeared
    TERMINATED = "ended by SIGTERM"  # as torchrun ends the other ranks when one has failed
    STALLED = "hangs"  # a time limit ended it
    STOPPED = "stopped"  # by a watchpoint or an inspector
    RUNNING = "running"
    UNKNOWN = "running or killed"  # on another machine: nothing says which
    MISSING = "no run"  # it left none


Position = tuple[int, int, int]  # call, launch, and 1 if that has ended


@dataclass(frozen=True)
class Progress:
    """The launch that a rank came to, and its end.

    Attributes:
        current: the launch that it was in, or that the device had not completed; None between launches.
        last: the last launch that began, of any call of the model.
        calls: calls of the model that ended.
        unix_ns: when it ended, or else when it recorded something last, by the clock of its machine; None: nothing is
            known.
        is_seen: True if that is the end itself; the process may have lived on after its last record.
        idle_ns: the nanoseconds between its last record and its end, if that was seen.
        outside: where it was outside of the package when a signal ended it; None if nothing says so.
        signal: that it died of: "SIGSEGV"; "" if it was none of its own.
        is_aborted_elsewhere: True if a thread that calls no model aborted the process, as the watchdog of NCCL does.
        what: for people: "SIGSEGV (Segmentation fault)"; "" of a rank that finished or runs.
    """

    end: End
    current: Launch | None = None
    last: Launch | None = None
    calls: int = 0
    unix_ns: int | None = None
    is_seen: bool = False
    idle_ns: int = 0
    outside: Outside | None = None
    signal: str = ""
    is_aborted_elsewhere: bool = False
    what: str = ""

    @property
    def is_in_collective(self) -> bool:
        """True if the rank was within a collective."""
        return self.current is not None and is_collective(self.current.site)

    @property
    def position(self) -> Position:
        """The place in the program; a rank that began a launch is before one that ended it, one without a run first."""
        if self.end is End.MISSING:
            return (-1, -1, 1)
        if self.current is not None:
            return (self.current.key.call, self.current.key.launch, 0)
        if self.last is None:
            return (0, -1, 1)
        if self.calls > self.last.key.call:
            return (self.calls, -1, 1)
        return (self.last.key.call, self.last.key.launch, 1)

    @property
    def place(self) -> str:
        """The place for people: "in 0.3 KERNEL", "after 0.3 KERNEL", "before its first launch", "without a run"."""
        if self.current is not None:
            return f"in {self.current.id} {self.current.kernel}"
        if self.end is End.MISSING:
            return "without a run"
        if self.last is None:
            return "before its first launch"
        return f"after {self.last.id} {self.last.kernel}"


def progress_of(diagnosed: DiagnosedRun | None) -> Progress:
    """The progress of a rank; None is one that left no run.

    Raises:
        RunDirError: a record of the run cannot be read.
    """
    if diagnosed is None:
        return Progress(End.MISSING)
    run, verdict = diagnosed.run, diagnosed.verdict
    launches = [launch for launch in run.launches if launch.key.kind is CallKind.MODEL]
    last = max(launches, key=lambda launch: launch.key, default=None)
    end = _end(run)
    current = None
    if verdict is not None and verdict.suspects:
        current = _likely(verdict.suspects, end)
    elif end is End.RUNNING:
        current = next((launch for launch in launches if launch.status is LaunchStatus.OPEN), None)
    seen, recorded = _end_ns(run, end), _last_record_ns(run)
    return Progress(
        end,
        current,
        last,
        sum(call.ended and not call.failed for call in run.timeline.calls if call.kind is CallKind.MODEL),
        seen or recorded,
        seen is not None,
        max(seen - recorded, 0) if seen is not None and recorded is not None else 0,
        outside(run) if current is None and end in (End.TERMINATED, End.STALLED) else None,
        _signal(run) if end is End.CRASHED else "",
        end is End.CRASHED and _is_aborted_elsewhere(run),
        _what(run, end, verdict),
    )


def _likely(suspects: Sequence[Launch], end: End) -> Launch:
    """Of launches that the device may have been in, the collective: also NCCL ends a process that waits too long."""
    waits = (launch for launch in suspects if is_collective(launch.site))
    return suspects[0] if end is End.FAILED else next(waits, suspects[0])


def _what(run: RunDir, end: End, verdict: Verdict | None) -> str:
    caught = crash_stacks.last_signal(run.path)
    if end is End.CRASHED and not run.info.exit.signal and caught is not None:
        return signal_text(caught.signal)
    if end is End.UNKNOWN:
        return "status unknown (killed or running)"
    if end is End.KILLED and not run.info.exit.signal:
        return "it disappeared, as by SIGKILL,"
    return "" if verdict is None else verdict.what


def _signal(run: RunDir) -> str:
    """The signal that the process of a run died of, or wrote its stack for; "" without any."""
    caught = crash_stacks.last_signal(run.path)
    return run.info.exit.signal or (caught.signal if caught is not None and not run.timeline.ended else "")


def _is_aborted_elsewhere(run: RunDir) -> bool:
    caught = crash_stacks.last_signal(run.path)
    if caught is None or caught.signal != "SIGABRT":
        return False
    return all(call.thread != caught.thread for call in run.timeline.calls)


def _end(run: RunDir) -> End:
    state, exit_ = run.state, run.info.exit
    simple = {
        ExitKind.RUNNING: End.RUNNING,
        ExitKind.STOPPED: End.STOPPED,
        ExitKind.TIMEOUT: End.STALLED,
        ExitKind.CLEAN: End.FINISHED,
    }
    if state in simple:
        return simple[state]
    signal = _signal(run)
    if signal in DEATHS:
        return End.CRASHED
    if run.timeline.faults or exit_.exception:
        return End.FAILED
    if signal == TERMINATION:
        return End.TERMINATED
    if state is not ExitKind.ABORTED:
        return End.FAILED
    is_elsewhere = run.info.rank is not None and run.info.rank.machine != machine_name()
    return End.UNKNOWN if is_elsewhere and run.info.exit.kind is ExitKind.RUNNING else End.KILLED


def _end_ns(run: RunDir, end: End) -> int | None:
    """When the process ended or failed, if that was seen."""
    if end is End.FAILED and run.timeline.faults and run.journal is not None:
        return run.journal.header.start_unix_ns + run.timeline.faults[0].time_ns
    caught = crash_stacks.last_signal(run.path)
    if end in (End.CRASHED, End.TERMINATED) and caught is not None and caught.unix_ns:
        return caught.unix_ns
    if run.info.exit.unix_time is not None:
        return int(run.info.exit.unix_time * SECOND)
    return _last_record_ns(run) if run.timeline.ended else None


def _last_record_ns(run: RunDir) -> int | None:
    journal = run.journal
    if journal is None or journal.index.last_ns is None:
        return None
    return journal.header.start_unix_ns + journal.index.last_ns


@dataclass(frozen=True)
class RankRun:
    """The run of one rank.

    Attributes:
        number: its rank.
        path: its run directory; it may be missing.
        diagnosed: None if it left no run that can be read.
        reason: why it left none; "" otherwise.
    """

    number: int
    path: Path
    diagnosed: DiagnosedRun | None
    reason: str = ""

    @cached_property
    def progress(self) -> Progress:
        """The launch that it came to, and its end.

        Raises:
            RunDirError: a record of the run cannot be read.
        """
        return progress_of(self.diagnosed)

    @property
    def machine(self) -> str:
        """The name of its machine; "" if it is not known."""
        rank = None if self.diagnosed is None else self.diagnosed.run.info.rank
        return "" if rank is None else rank.machine

    @property
    def program(self) -> str:
        """The hash of the generated code that it ran; "" if it left no run."""
        return "" if self.diagnosed is None else self.diagnosed.run.manifest.source_sha256


@dataclass(frozen=True)
class RanksRun:
    """A run of ranks.

    Attributes:
        ranks: all that were started, by number.
    """

    path: Path
    info: RanksInfo
    ranks: tuple[RankRun, ...]

    @property
    def recorded(self) -> tuple[RankRun, ...]:
        """The ranks that left a run."""
        return tuple(rank for rank in self.ranks if rank.diagnosed is not None)


def open_ranks(path: Path) -> RanksRun:
    """Opens the run of ranks in a directory. A rank whose run cannot be read is one without a run.

    Raises:
        RunDirError: the directory is not one of a run of ranks, or no rank left a run.
    """
    directory = ranks_directory.read(path)
    numbers = sorted({*range(directory.info.world_size), *directory.ranks})
    ranks = tuple(_open(number, directory.ranks.get(number), path / f"rank{number}") for number in numbers)
    opened = RanksRun(path, directory.info, ranks)
    if not opened.recorded:
        raise RunDirError(f"{path}: no rank has recorded a run", hint="was the package called, at a level above 0?")
    return opened


def _open(number: int, found: Path | None, path: Path) -> RankRun:
    if found is None:
        return RankRun(number, path, None, "it has not called the package")
    try:
        return RankRun(number, found, open_diagnosed(found))
    except RunDirError as error:
        return RankRun(number, found, None, str(error))
