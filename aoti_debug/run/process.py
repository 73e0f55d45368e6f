"""Starts the process that a package runs in, passes its output on, and keeps the time."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aoti_debug.native import crash_stacks
from aoti_debug.run.watchdog import Limits, Patience, ask_for_stacks
from aoti_debug.rundir.run_json import Stage

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
    error: Mapping[str, Any] | None = None
    returncode: int = 0
    given_up: str = ""  # why the process was killed: "no progress for 30 s"; "" where it was not
    lost: str = ""  # why stdout.log or stderr.log is not complete

    def hear(self, line: bytes, observer: Observer) -> None:
        said = json.loads(line)
        if "stage" in said:
            self.stage = Stage(said["stage"])
            observer.reached(self.stage)
        self.torch_version = said.get("torch", self.torch_version)
        self.seconds = said.get("seconds", self.seconds)
        self.error = said.get("error", self.error)

    @property
    def signal(self) -> str:
        """ "SIGSEGV"; "" where no signal ended the process."""
        if self.returncode >= 0:
            return ""
        names = {number.value: number.name for number in signal.Signals}
        return names.get(-self.returncode, f"signal {-self.returncode}")


class Child:
    """One process. Its output goes to `stdout.log` and `stderr.log` of the run, and to the observer."""

    def __init__(self, request: Mapping[str, Any], environment: Mapping[str, str], run: Path) -> None:
        reading, writing = os.pipe()
        try:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "aoti_debug.run.worker",
                    json.dumps(
                        {
                            **request,
                            "pipe": writing,
                            "parent": os.getpid(),
                            "run": str(run),
                            "python_stacks": str(run / crash_stacks.PYTHON),
                        }
                    ),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                pass_fds=(writing,),
                start_new_session=True,
            )
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._pipes: dict[str, int] = {
            "stdout": self.process.stdout.fileno(),
            "stderr": self.process.stderr.fileno(),
            "report": reading,
        }
        self._run = run
        self._reading = reading

    def watch(self, observer: Observer, limits: Limits) -> Report:
        """Waits for the end. A process that goes beyond the limits says where it is, and is killed."""
        report = Report()
        patience = Patience(limits, self._run)
        farewell: float | None = None
        unfinished = b""
        logs = {name: _Log(self._run / f"{name}.log") for name in ("stdout", "stderr")}
        try:
            with selectors.DefaultSelector() as selector:
                for name, descriptor in self._pipes.items():
                    selector.register(descriptor, selectors.EVENT_READ, name)
                while selector.get_map():
                    ended = self.process.poll() is not None
                    ready = selector.select(_TICK)
                    for key, _ in ready:
                        data = os.read(key.fd, _CHUNK)
                        if not data:
                            selector.unregister(key.fd)
                        elif key.data == "report":
                            *lines, unfinished = (unfinished + data).split(b"\n")
                            for line in lines:
                                report.hear(line, observer)
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
                        self.kill()
            report.returncode = self.process.wait()
            report.lost = next((log.failure for log in logs.values() if log.failure), "")
        finally:
            self.kill()
            for log in logs.values():
                log.close()
            self._close()
        return report

    def _end_if(self, why: str) -> str:
        """Ends the process where there is a reason; "" where there is none, or it has ended already."""
        if not why or self.process.poll() is not None:
            return ""
        ask_for_stacks(self.process.pid, self._run)
        self.kill()
        return why

    def kill(self) -> None:
        """Ends the process and those that it started, if they still live. A process that hangs in the device's driver
        hears nothing but SIGKILL."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _close(self) -> None:
        self.process.wait()
        os.close(self._reading)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


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
