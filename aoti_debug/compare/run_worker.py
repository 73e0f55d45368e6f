"""Has the regions of a run evaluated by a child process, and collects its measurements.

If the process dies in a region, that region is not comparable, and a new process goes on with the next one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from aoti_debug.compare.protocol.bad_operand import BadOperand
from aoti_debug.compare.protocol.measurement import (
    Inherited,
    PeakMemory,
    ProgramFailure,
    RegionResult,
    StateChange,
    StatesFailure,
)
from aoti_debug.compare.protocol.messages import Failed, Started, read_message
from aoti_debug.compare.protocol.origin import Origin
from aoti_debug.compare.protocol.request import CompareRequest
from aoti_debug.errors import TargetError
from aoti_debug.machine import json_data, process, python_process
from aoti_debug.machine.python_process import DESCRIPTOR, PythonCommand

WORKER = "aoti_debug.compare.worker.main"
REQUEST = "request.json"
LOG = "evaluation.log"
_MOST_DEATHS = 8


@dataclass
class Evaluated:
    """The measurements of a run.

    Attributes:
        peak_bytes: the largest resident size of the evaluating process; 0 if it died.
    """

    results: list[RegionResult] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    bad_operands: list[BadOperand] = field(default_factory=list)
    inherited: list[Inherited] = field(default_factory=list)
    states: list[StateChange] = field(default_factory=list)
    program_failure: str = ""
    states_failure: str = ""
    peak_bytes: int = 0


def evaluate(request: CompareRequest, folder: Path, progress: Callable[[int], None]) -> Evaluated:
    """Evaluates the regions of a request, then the whole program.

    Args:
        folder: for the request and the output of the process.
        progress: called with the number of evaluated regions.

    Raises:
        AotiDebugError: an operator's module cannot be imported, the metric fails, or the process does not start.
    """
    evaluated = Evaluated()
    remaining = request
    deaths = 0  # of processes one after the other that evaluated nothing
    while True:
        before = len(evaluated.results)
        ended = _run(remaining, folder, evaluated, progress)
        done = len(evaluated.results)
        deaths = deaths + 1 if done == before else 0
        if ended and deaths == _MOST_DEATHS:
            reason = f"its evaluation was not tried: that of {_MOST_DEATHS} launches before it {ended}"
            failed = (RegionResult(region.launch, failure=reason) for region in request.regions[done:])
            evaluated.results += failed
            evaluated.program_failure = reason
            return evaluated
        if not ended:
            return evaluated
        if done == len(request.regions):
            evaluated.program_failure = f"its evaluation {ended}"
            return evaluated
        evaluated.results.append(RegionResult(request.regions[done].launch, failure=f"its evaluation {ended}"))
        progress(done + 1)
        remaining = replace(request, regions=request.regions[done + 1 :])


def _run(request: CompareRequest, folder: Path, evaluated: Evaluated, progress: Callable[[int], None]) -> str:
    """Runs one process to its end; returns how it ended, "" if it did all of the request."""
    path = folder / REQUEST
    path.write_text(json_data.to_text(request, indent=None))
    read_end, write_end = os.pipe()
    try:
        with (folder / LOG).open("ab") as log:
            child = python_process.start(
                PythonCommand(WORKER, arguments=(DESCRIPTOR, str(path))),
                os.environ,
                stdout=log.fileno(),
                stderr=subprocess.STDOUT,
                inherited=write_end,
            )
    except OSError:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    has_started = False
    with child, os.fdopen(read_end, "rb") as pipe:
        for line in pipe:
            match read_message(line):
                case Started():
                    has_started = True
                case RegionResult() as result:
                    evaluated.results.append(result)
                    progress(len(evaluated.results))
                case Origin() as origin:
                    evaluated.origins.append(origin)
                case BadOperand() as bad:
                    evaluated.bad_operands.append(bad)
                case Inherited() as difference:
                    evaluated.inherited.append(difference)
                case StateChange() as change:
                    evaluated.states.append(change)
                case StatesFailure(reason):
                    evaluated.states_failure = reason
                case ProgramFailure(reason):
                    evaluated.program_failure = reason
                case PeakMemory(bytes=peak):
                    evaluated.peak_bytes = max(evaluated.peak_bytes, peak)
                case Failed(error):
                    raise error.to_error() or TargetError(
                        f"the program cannot be evaluated: {error.type}: {error.message}",
                        hint="pass --import MODULE or --load-library PATH for custom operators",
                    )
        code = child.wait()
    if not has_started:
        ending = process.describe_end(code, folder / LOG)
        raise TargetError(
            f"the process that evaluates the program did not start: it ended with {ending}",
            hint="aoti-debug doctor checks this machine",
        )
    return f"ended with {process.describe_exit(code)}" if code else ""
