"""Has the regions of a run evaluated by a child process, and collects its measurements.

If the process dies in a region, that region is not comparable, and a new process goes on with the next one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from aoti_debug.base.errors import TargetError
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.processes import child_process, python_process
from aoti_debug.base.machine.processes.python_process import DESCRIPTOR, PythonCommand
from aoti_debug.compare.protocol import measurement
from aoti_debug.compare.protocol.messages import (
    BadOperand,
    EvaluationFailed,
    Message,
    Origin,
    Refusal,
    Started,
    read_message,
)
from aoti_debug.compare.protocol.request import CompareRequest

WORKER = "aoti_debug.compare.worker.main"
REQUEST = "request.json"
LOG = "evaluation.log"
_MAX_DEATHS = 8


@dataclass(kw_only=True)
class EvaluatedRun:
    """The measurements of a run.

    Attributes:
        exported_outputs: what the exported program returns; None if it was not called.
        altered: what passes have made of it; None unless the outputs are wrong.
        faulty_outputs: outputs of the run that are wrong beyond any rounding.
        noise: how far wrong outputs move when operators round otherwise, by their number.
        undefined: operators of the exported program that do what its graph does not say.
        refusal: why the exported program raises an exception in eager; None if it does not.
        peak_bytes: the largest resident size of the evaluating process; 0 if it died.
    """

    results: list[measurement.RegionResult] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    bad_operands: list[BadOperand] = field(default_factory=list)
    inherited: list[measurement.Inherited] = field(default_factory=list)
    states: list[measurement.StateChange] = field(default_factory=list)
    values: list[measurement.SavedValue] = field(default_factory=list)
    outputs: list[measurement.SavedOutput] = field(default_factory=list)
    exported_outputs: measurement.ExportedOutputs | None = None
    altered: measurement.AlteredProgram | None = None
    faulty_outputs: list[measurement.FaultyOutput] = field(default_factory=list)
    noise: dict[int, float] = field(default_factory=dict)
    undefined: list[measurement.UndefinedResult] = field(default_factory=list)
    inexact: list[measurement.InexactResult] = field(default_factory=list)
    refusal: Refusal | None = None
    program_failure: str = ""
    states_failure: str = ""
    peak_bytes: int = 0


class EvaluationProcess:
    """A process that evaluates one request; it prepares itself until it is asked.

    Args:
        device: "cpu" or "cuda".
        log: for its output.

    Raises:
        OSError: it does not start.
    """

    def __init__(self, device: str, log: Path) -> None:
        self._log = log
        self._socket, other = socket.socketpair()
        try:
            with other, log.open("ab") as file:
                self._child = python_process.start(
                    PythonCommand(WORKER, arguments=(DESCRIPTOR, device)),
                    os.environ,
                    stdout=file.fileno(),
                    stderr=subprocess.STDOUT,
                    inherited=other.fileno(),
                )
        except OSError:
            self._socket.close()
            raise

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._child.pid

    @property
    def has_ended(self) -> bool:
        """True if it has ended before it was asked: killed, or out of memory."""
        return self._child.poll() is not None

    def ask(self, request: Path) -> Iterator[Message]:
        """Yields its messages about the request in a file, until it is done or has ended."""
        with contextlib.suppress(OSError):  # it has ended already; its exit code says more
            self._socket.sendall(f"{request}\n".encode())
        with self._socket.makefile("rb") as channel, contextlib.suppress(ConnectionResetError):
            for line in channel:
                message = read_message(line)
                yield message
                if isinstance(message, measurement.PeakMemory):
                    return

    def ending(self) -> str:
        """Waits for its end; "" if its exit code is 0."""
        code = self._child.wait()
        return f"ended with {child_process.describe_exit(code)}" if code else ""

    def start_failure(self) -> str:
        """Waits for its end, and describes it with the end of its output."""
        return child_process.describe_end(self._child.wait(), self._log)

    def close(self) -> None:
        """Kills it if it is still there; may be called again."""
        self._child.__exit__(None, None, None)
        self._socket.close()


def evaluate(
    request: CompareRequest, folder: Path, progress: Callable[[int], None], prepared: EvaluationProcess | None = None
) -> EvaluatedRun:
    """Evaluates the regions of a request, then the whole program.

    Args:
        folder: for the request and the output of the process.
        progress: called with the number of evaluated regions.
        prepared: a process that is used first, if it is still there, and closed.

    Raises:
        AotiDebugError: an operator's module cannot be imported, the metric fails, or the process does not start.
    """
    evaluated = EvaluatedRun()
    remaining = request
    if prepared is not None and prepared.has_ended:
        prepared = None
    deaths = 0  # of processes one after the other that evaluated nothing
    while True:
        before = len(evaluated.results)
        worker, prepared = prepared or EvaluationProcess(request.device, folder / LOG), None
        with contextlib.closing(worker):
            ended = _run(worker, remaining, folder, evaluated, progress)
        done = len(evaluated.results)
        deaths = deaths + 1 if done == before else 0
        if ended and deaths == _MAX_DEATHS:
            reason = f"its evaluation was not tried: that of {_MAX_DEATHS} launches before it {ended}"
            failed = (
                measurement.RegionResult(launch=region.launch, failure=reason) for region in request.regions[done:]
            )
            evaluated.results += failed
            evaluated.program_failure = reason
            return evaluated
        if not ended:
            return evaluated
        if done == len(request.regions):
            evaluated.program_failure = f"its evaluation {ended}"
            return evaluated
        evaluated.results.append(
            measurement.RegionResult(launch=request.regions[done].launch, failure=f"its evaluation {ended}")
        )
        progress(done + 1)
        remaining = replace(request, regions=request.regions[done + 1 :])


def _run(
    worker: EvaluationProcess,
    request: CompareRequest,
    folder: Path,
    evaluated: EvaluatedRun,
    progress: Callable[[int], None],
) -> str:
    """Has one process evaluate a request; returns how it ended, "" if it did all of it."""
    path = folder / REQUEST
    path.write_text(json_data.to_text(request, indent=None))
    has_started = False
    for message in worker.ask(path):
        match message:
            case Started():
                has_started = True
            case measurement.RegionResult() as result:
                evaluated.results.append(result)
                progress(len(evaluated.results))
            case Origin() as origin:
                evaluated.origins.append(origin)
            case BadOperand() as bad:
                evaluated.bad_operands.append(bad)
            case measurement.Inherited() as difference:
                evaluated.inherited.append(difference)
            case measurement.StateChange() as change:
                evaluated.states.append(change)
            case measurement.SavedValue() as value:
                evaluated.values.append(value)
            case measurement.SavedOutput() as output:
                evaluated.outputs.append(output)
            case measurement.ExportedOutputs() as outputs:
                evaluated.exported_outputs = outputs
            case measurement.AlteredProgram() as altered:
                evaluated.altered = altered
            case measurement.FaultyOutput() as faulty:
                evaluated.faulty_outputs.append(faulty)
            case measurement.OutputNoise(index, moved):
                evaluated.noise[index] = moved
            case measurement.UndefinedResult() as undefined:
                evaluated.undefined.append(undefined)
            case measurement.InexactResult() as inexact:
                evaluated.inexact.append(inexact)
            case Refusal() as refusal:
                evaluated.refusal = refusal
            case measurement.StatesFailure(reason):
                evaluated.states_failure = _joined(evaluated.states_failure, reason)
            case measurement.ProgramFailure(reason):
                evaluated.program_failure = reason
            case measurement.PeakMemory(bytes=peak):
                evaluated.peak_bytes = max(evaluated.peak_bytes, peak)
                return ""
            case EvaluationFailed(error):
                raise error.to_error() or TargetError(
                    f"the program cannot be evaluated: {error.type}: {error.message}",
                    hint="pass --import MODULE or --load-library PATH for custom operators",
                )
    if not has_started:
        raise TargetError(
            f"the process that evaluates the program did not start: it ended with {worker.start_failure()}",
            hint="aoti-debug doctor checks this machine",
        )
    return worker.ending()


def _joined(first: str, second: str) -> str:
    """Two reasons, each once."""
    return "; ".join(dict.fromkeys(filter(None, (*first.split("; "), second))))
