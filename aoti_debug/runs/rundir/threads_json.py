"""threads.json of a run directory: calls of the model from several threads, and what became of each.

It is written twice: before the calls, so that after a crash the threads are known, and after them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from aoti_debug.base.abi import CallKind
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.base.machine.files.json_data import DamagedJsonError
from aoti_debug.runs.rundir.launch import ModelCall

NAME = "threads.json"
FORMAT = 1


class WeightUpdates(str, Enum):
    """The updates of the weights while threads call the model."""

    NONE = "none"
    EQUAL = "equal"  # after each call of thread 0 they are replaced by equal ones, and swapped in


@dataclass(frozen=True)
class Jitter:
    """The means that make races show more often: random delays before launches, and perturbed memory.

    Attributes:
        seed: of the random numbers, below 2**31.
        launches: the numbers in a call of the launches that are delayed; None for every one.
        memory: tensors on the CPU lie in memory that is NaN at first, and that goes from thread to thread.
    """

    seed: int
    launches: tuple[int, ...] | None = None
    memory: bool = True

    @property
    def variable(self) -> str | None:
        """The value of AOTI_DEBUG_JITTER: "7", "7:0,3"; None for no delays."""
        if self.launches is None:
            return str(self.seed)
        return f"{self.seed}:{','.join(map(str, self.launches))}" if self.launches else None


@dataclass(frozen=True, kw_only=True)
class ThreadPlan:
    """Threads that call a model.

    Attributes:
        threads: how many.
        runners: how many calls the loader lets run at once.
        sets: how many different inputs they use: the given ones, and changed copies of them.
        updates: of the weights.
        expected: a file of what the model returns for each set of inputs: bit for bit, or the call is wrong. If there
            is none, the calls with a set are compared with the first of them, and the file is written.
        jitter: None for no delays before launches.
    """

    threads: int
    runners: int
    sets: int
    updates: WeightUpdates
    expected: str
    jitter: Jitter | None = None


class CallState(str, Enum):
    """The outcome of a call of a thread; in the order of AotiDebugThreadCallState."""

    NOT_MADE = "not made"
    EQUAL = "equal"
    DIFFERS = "differs"  # from the same call alone, when it returned
    CHANGED = "changed later"  # equal when it returned, and different when the next call of its thread had ended
    RAISED = "raised an exception"

    @property
    def is_wrong(self) -> bool:
        """True if an output differs from that of the same call alone."""
        return self in (CallState.DIFFERS, CallState.CHANGED)


@dataclass(frozen=True, kw_only=True)
class OutputElement:
    """The first element of an output that differs.

    Attributes:
        output: the number of the output.
        index: of the element, one number for each dimension; () also where the sizes or the dtype differ.
        values: alone and from the thread, as text; of outputs of other sizes or dtypes, those.
        different, elements: how many differ, of how many; 0 where the sizes or the dtype differ.
    """

    output: int
    index: tuple[int, ...]
    values: tuple[str, str]
    different: int
    elements: int


@dataclass(frozen=True, kw_only=True)
class ThreadCall:
    """A call of the model by a thread.

    Attributes:
        thread: the number of the thread, from 0.
        inputs: the number of its set of inputs; 0: those that were given, others: changed copies of them.
        element: None unless an output differs.
    """

    thread: int
    inputs: int
    state: CallState = CallState.NOT_MADE
    element: OutputElement | None = None


@dataclass(frozen=True, kw_only=True)
class ThreadsRecord:
    """All calls of a run.

    Attributes:
        threads: the operating system's id of each thread, as in `Launch.thread`.
        runners: how many calls the loader lets run at once.
        sets: the number of different inputs.
        updates: how often the weights were replaced by equal ones meanwhile.
        calls: in the order in which they are dealt to the threads.
    """

    threads: tuple[int, ...]
    runners: int
    sets: int
    calls: tuple[ThreadCall, ...]
    updates: int = 0
    format: int = FORMAT

    def numbers(self, calls: Sequence[ModelCall]) -> Iterator[int | None]:
        """The number in the run of each call; None for one that the model did not begin.

        Args:
            calls: of the run.
        """
        begun = {
            thread: iter([c.call for c in calls if c.thread == thread and c.kind is CallKind.MODEL])
            for thread in self.threads
        }
        for call in self.calls:
            yield next(begun[self.threads[call.thread]], None)

    def thread_number(self, thread: int) -> int | None:
        """The number of a thread of the operating system; None if it is none of those that call the model."""
        return self.threads.index(thread) if thread in self.threads else None


def deal(calls: int, threads: int, sets: int) -> tuple[ThreadCall, ...]:
    """The calls, dealt to the threads in turn. The inputs of a call do not depend on the number of threads.

    With as many sets as threads, those that go on at the same pace have different inputs.
    """
    return tuple(ThreadCall(thread=call % threads, inputs=(call + call // sets) % sets) for call in range(calls))


def write(record: ThreadsRecord, run: Path) -> None:
    """Replaces the file atomically.

    Raises:
        OSError: it cannot be written.
    """
    atomic_write.write(run / NAME, json_data.to_text(record) + "\n")


def read(run: Path) -> ThreadsRecord | None:
    """Reads the file of a run directory; None if the run has none.

    Raises:
        RunDirError: it is damaged, or has another format version.
    """
    with contextlib.suppress(FileNotFoundError):
        return json_data.read_file(run, NAME, _read, format_=FORMAT, hint="run the package again")
    return None


def _read(data: Mapping[str, Any]) -> ThreadsRecord:
    record = json_data.from_data(ThreadsRecord, data)
    for number, call in enumerate(record.calls):
        if call.thread not in range(len(record.threads)) or call.inputs not in range(record.sets):
            raise DamagedJsonError(f"calls[{number}] is of a thread or of inputs that there are not")
        if call.state.is_wrong and call.element is None:
            raise DamagedJsonError(f"calls[{number}] differs, and does not say where")
    return record
