"""Starts the process that a package runs in, passes its output on, and keeps the time."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from aoti_debug.machine import json_data, process
from aoti_debug.machine.error_data import ErrorData
from aoti_debug.machine.process import Child
from aoti_debug.run.protocol import (
    CallsDone,
    Failed,
    Message,
    Request,
    StageReached,
    TorchImported,
    read_message,
)
from aoti_debug.run.watchdog import Limits, Patience, ask_for_stacks
from aoti_debug.rundir.run_json import Stage

WORKER = "aoti_debug.run.worker"
_MESSAGES = "messages"  # the pipe beside "stdout" and "stderr"
_TICK = 0.1  # seconds
_CHUNK = 1 << 16
_FAREWELL = 30.0  # seconds that a process with a broken device may take to end


class Observer:
    """Is told what happens while a package runs; does nothing with it."""

    def started(self, run: Path) -> None:
        """The run directory is made and the process is about to start."""

    def reached(self, stage: Stage) -> None:
        """The process came to a stage."""

    def output(self, stream: str, data: bytes) -> None:
        """The process wrote to "stdout" or "stderr"."""

    def tick(self) -> None:
        """Ten times a second."""


@dataclass
class Report:
    """What the process told of itself, and how it ended."""

    stage: Stage = Stage.IMPORT
    torch_version: str | None = None
    seconds: float | None = None
    error: ErrorData | None = None
    returncode: int = 0
    given_up: str = ""  # why the process was killed: "no progress for 30 s"; "" where it was not
    lost: str = ""  # why stdout.log or stderr.log is not complete

    def hear(self, message: Message, observer: Observer) -> None:
        match message:
            case StageReached(stage):
                self.stage = stage
                observer.reached(stage)
            case TorchImported(version):
                self.torch_version = version
            case CallsDone(seconds):
                self.seconds = seconds
            case Failed(error):
                self.error = error

    @property
    def signal(self) -> str:
        """ "SIGSEGV"; "" where no signal ended the process."""
        return process.fatal_signal(self.returncode)


class ModelProcess:
    """The process that a package runs in, killed at the end of a `with`. Its output goes to `stdout.log` and
    `stderr.log` of the run, and to the observer."""

    def __init__(self, request: Request, environment: Mapping[str, str]) -> None:
        self._run = Path(request.run)
        self._messages, writing = os.pipe()
        try:
            self._child = Child(
                [sys.executable, "-m", WORKER, str(writing), json_data.to_text(request, indent=None)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                environment=environment,
                pass_fds=(writing,),
            )
        except OSError:
            os.close(self._messages)
            raise
        finally:
            os.close(writing)
        self.pid = self._child.pid

    def __enter__(self) -> ModelProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._child.__exit__(kind, error, traceback)
        os.close(self._messages)

    def watch(self, observer: Observer, limits: Limits) -> Report:
        """Waits for the end. A process that goes beyond the limits says where it is, and is killed.

        Raises:
            DamagedJsonError: it sent what is no message.
        """
        report = Report()
        patience = Patience(limits, self._run)
        farewell: float | None = None
        unfinished = b""
        logs = {name: _Log(self._run / f"{name}.log") for name in ("stdout", "stderr")}
        try:
            with selectors.DefaultSelector() as selector:
                for name, pipe in self._pipes().items():
                    selector.register(pipe, selectors.EVENT_READ, name)
                while selector.get_map():
                    ended = self._child.poll() is not None
                    ready = selector.select(_TICK)
                    for key, _ in ready:
                        data = os.read(key.fd, _CHUNK)
                        if not data:
                            selector.unregister(key.fd)
                        elif key.data == _MESSAGES:
                            *lines, unfinished = (unfinished + data).split(b"\n")
                            for line in lines:
                                report.hear(read_message(line), observer)
                        else:
                            logs[key.data].write(data)
                            observer.output(key.data, data)
                    observer.tick()
                    if ended and not ready:
                        break  # a process that it started still holds the pipes
                    if report.error is not None and farewell is None:
                        farewell = time.monotonic() + _FAREWELL
                    if not report.given_up and report.error is None and not ended:
                        report.given_up = self._end_if(patience.exhausted(report.stage))
                    if farewell is not None and time.monotonic() > farewell:
                        self._child.kill()
            report.returncode = self._child.wait()
            report.lost = next((log.failure for log in logs.values() if log.failure), "")
        finally:
            for log in logs.values():
                log.close()
        return report

    def _pipes(self) -> dict[str, int]:
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        return {
            "stdout": self._child.stdout.fileno(),
            "stderr": self._child.stderr.fileno(),
            _MESSAGES: self._messages,
        }

    def _end_if(self, why: str) -> str:
        """Ends the process where there is a reason; "" where there is none, or it has ended already."""
        if not why or self._child.poll() is not None:
            return ""
        ask_for_stacks(self.pid, self._run)
        self._child.kill()
        return why


class _Log:
    """A file that takes what it is given until the disk does not: losing a log must not end the run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb", buffering=0)
        self.failure = ""

    def write(self, data: bytes) -> None:
        if self.failure:
            return
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) or 0 :]
        except OSError as error:
            self.failure = f"{self._path.name} is not complete: {error.strerror}"

    def close(self) -> None:
        self._file.close()
