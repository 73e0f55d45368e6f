"""Starts the process that a package runs in, forwards its output, and enforces the time limits."""

from __future__ import annotations

import errno
import os
import selectors
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.processes import child_process, python_process
from aoti_debug.base.machine.processes.messages import ErrorData
from aoti_debug.base.machine.processes.python_process import DESCRIPTOR, PARENT, PythonCommand
from aoti_debug.base.machine.steps import Stopwatch
from aoti_debug.runs.run.configuration import CORE_FILE, CORE_PIPE
from aoti_debug.runs.run.protocol import (
    WORKER,
    CallsBegun,
    CallsDone,
    Message,
    ResultsUnsaved,
    RunFailed,
    RunRequest,
    SettingsApplied,
    StageReached,
    TorchImported,
    Unloaded,
    read_message,
)
from aoti_debug.runs.run.watchdog import Limits, Watchdog, request_gpu_core, request_stacks
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_json import CallPurpose, RunStage, ToolCalls

_MESSAGES = "messages"  # the third pipe, beside "stdout" and "stderr"
_TICK = 0.1  # seconds
_CHUNK = 1 << 16
_EXIT_GRACE_PERIOD = 30.0  # seconds that a process may take to end after an exception, with a broken device


class Observer:
    """Receives the events of a run; ignores all of them. Subclasses override what they need."""

    def started(self, run: Path) -> None:
        """The run directory exists and the process is about to start."""

    def reached(self, stage: RunStage) -> None:
        """The process reached a stage."""

    def output(self, stream: str, data: bytes) -> None:
        """The process wrote to "stdout" or "stderr"."""

    def tick(self) -> None:
        """Ten times a second."""


@dataclass
class Report:
    """The messages that the process sent, and how it ended.

    Attributes:
        stopwatch: measures the phases of the run.
        unix_time: when the process died, or said that it had failed; seconds.
    """

    stopwatch: Stopwatch
    stage: RunStage = RunStage.IMPORT
    torch_version: str | None = None
    torch_settings: Mapping[str, Any] | None = None
    seconds: float | None = None
    calls: tuple[CallsBegun, ...] = ()
    error: ErrorData | None = None
    unsaved: ErrorData | None = None
    returncode: int = 0
    kill_reason: str = ""  # "no progress for 30 s"; "" if the process was not killed
    unix_time: float | None = None
    log_failure: str = ""  # the reason why stdout.log or stderr.log is incomplete

    def receive(self, message: Message, observer: Observer) -> None:
        """Stores the content of a message, and notifies the observer of a new stage."""
        match message:
            case StageReached(stage):
                self.stage = stage
                self.stopwatch.next("import torch" if stage is RunStage.IMPORT else stage.value)
                observer.reached(stage)
            case TorchImported(version):
                self.torch_version = version
                self.stopwatch.next("import modules")
            case SettingsApplied(settings):
                self.torch_settings = settings
            case CallsBegun():
                self.calls = (*self.calls, message)
            case CallsDone(seconds):
                self.seconds = seconds
            case Unloaded():
                self.stopwatch.next("exit")
            case ResultsUnsaved(error):
                self.unsaved = error
            case RunFailed(error) if not self.kill_reason:  # else of a kernel that the core dump has ended
                self.error = error
                self.unix_time = time.time()
                self.stopwatch.next("exit")

    def require_saved(self) -> None:
        """Checks that what is kept of the calls is there.

        Raises:
            TargetError: the system refused to write it.
        """
        refused = None if self.unsaved is None else self.unsaved.to_error()
        if refused is not None:
            raise refused

    @property
    def tool_calls(self) -> tuple[ToolCalls, ...]:
        """The calls that nobody has asked for."""
        found, first = [], 0
        for begun in self.calls:
            if begun.purpose is not CallPurpose.ASKED and begun.count:
                found.append(ToolCalls(begun.purpose, first, begun.count))
            first += begun.count
        return tuple(found)

    @property
    def signal(self) -> str:
        """The signal that ended the process, "SIGSEGV"; "" if none did."""
        return child_process.fatal_signal(self.returncode)


class ModelProcess:
    """The process that a package runs in; killed at the end of a `with`.

    Its output goes to `stdout.log` and `stderr.log` of the run directory, and to the observer.
    """

    def __init__(self, request: RunRequest, environment: Mapping[str, str]) -> None:
        self._run = Path(request.run)
        self._dump = self._run / run_directory.GPU_CORE
        is_asked_for = environment.get(CORE_FILE) == str(self._dump.resolve())
        self._core_pipe = environment.get(CORE_PIPE, "") if is_asked_for else ""
        self._messages, write_end = os.pipe()
        try:
            self._child = python_process.start(
                PythonCommand(WORKER, arguments=(DESCRIPTOR, PARENT, json_data.to_text(request, indent=None))),
                environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                inherited=write_end,
            )
        except OSError:
            os.close(self._messages)
            raise
        finally:
            os.close(write_end)
        self.pid = self._child.pid

    def __enter__(self) -> ModelProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._child.__exit__(kind, error, traceback)
        os.close(self._messages)

    def watch(self, observer: Observer, limits: Limits, stopwatch: Stopwatch) -> Report:
        """Waits for the end of the process. One that exceeds the limits writes its stacks and is killed.

        Args:
            stopwatch: told of each phase of the process.

        Raises:
            DamagedJsonError: it sent a line that is not a message.
        """
        report = Report(stopwatch)
        watchdog = Watchdog(limits, self._run)
        exit_deadline: float | None = None
        with ProcessOutput(self._run, self._pipes(), report, observer) as output:
            while output.is_open:
                ended = self._child.poll() is not None
                if (ended or report.kill_reason) and report.unix_time is None:
                    report.unix_time = time.time()
                has_passed = output.pass_on()
                observer.tick()
                if ended and not has_passed:
                    break  # a process that it started still has the pipes open
                if report.error is not None and exit_deadline is None:
                    exit_deadline = time.monotonic() + _EXIT_GRACE_PERIOD
                if not report.kill_reason and report.error is None and not ended:
                    report.kill_reason = self._kill_for(watchdog.exceeded_limit(report.stage))
                if exit_deadline is not None and time.monotonic() > exit_deadline:
                    self._child.kill()
            report.returncode = self._child.wait()
            report.unix_time = report.unix_time or time.time()
            report.log_failure = output.log_failure
        return report

    def _pipes(self) -> dict[str, int]:
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        return {
            "stdout": self._child.stdout.fileno(),
            "stderr": self._child.stderr.fileno(),
            _MESSAGES: self._messages,
        }

    def _kill_for(self, reason: str) -> str:
        """Kills the process and returns the reason; "" if there is no reason, or the process has ended."""
        if not reason or self._child.poll() is not None:
            return ""
        request_stacks(self.pid, self._run)
        if self._core_pipe:
            request_gpu_core(self.pid, Path(self._core_pipe), self._dump)
        self._child.kill()
        return reason


class ProcessOutput:
    """The pipes that a process writes to: output goes to its log and the observer, a message into the report."""

    def __init__(self, run: Path, pipes: Mapping[str, int], report: Report, observer: Observer) -> None:
        self._report = report
        self._observer = observer
        self._unfinished = b""  # the beginning of a message
        self._logs = {name: _Log(run / f"{name}.log") for name in pipes if name != _MESSAGES}
        self._selector = selectors.DefaultSelector()
        for name, pipe in pipes.items():
            self._selector.register(pipe, selectors.EVENT_READ, name)

    def __enter__(self) -> ProcessOutput:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for log in self._logs.values():
            log.close()

    @property
    def is_open(self) -> bool:
        """True if more may come."""
        return bool(self._selector.get_map())

    @property
    def log_failure(self) -> str:
        """The reason why a log is incomplete; "" if all are whole."""
        return next((log.failure for log in self._logs.values() if log.failure), "")

    def pass_on(self) -> bool:
        """Passes on what was written, after a tick at most; False if nothing was."""
        ready = self._selector.select(_TICK)
        for key, _ in ready:
            data = _read(key.fd)
            if not data:
                self._selector.unregister(key.fd)
            elif key.data == _MESSAGES:
                *lines, self._unfinished = (self._unfinished + data).split(b"\n")
                for line in lines:
                    self._report.receive(read_message(line), self._observer)
            else:
                self._logs[key.data].write(data)
                self._observer.output(key.data, data)
        return bool(ready)


def _read(pipe: int) -> bytes:
    """The next bytes of a pipe or a terminal; none at its end."""
    try:
        return os.read(pipe, _CHUNK)
    except OSError as error:
        if error.errno == errno.EIO:  # of a terminal that nobody has open any more
            return b""
        raise


class _Log:
    """A log file. A write error is kept in `failure` and ends the log, not the run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb", buffering=0)
        self.failure = ""

    def write(self, data: bytes) -> None:
        if self.failure:
            return
        remaining = memoryview(data)
        try:
            while remaining:
                remaining = remaining[self._file.write(remaining) or 0 :]
        except OSError as error:
            self.failure = f"{self._path.name} is incomplete: {error.strerror}"

    def close(self) -> None:
        self._file.close()
