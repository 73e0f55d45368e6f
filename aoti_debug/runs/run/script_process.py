"""The process of a user's own script: its standard input and output stay as they are, stderr is kept as well.

Where stderr is a terminal, it is one for the script, too.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.processes import child_process
from aoti_debug.base.machine.steps import Stopwatch
from aoti_debug.runs.run.supervise import Observer, ProcessOutput, Report
from aoti_debug.runs.run.watchdog import Limits, ScriptWatchdog, request_all_stacks
from aoti_debug.runs.rundir.run_json import RunStage

_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)  # the terminal sends them to the script as well
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class UserScript:
    """A script with its arguments.

    Attributes:
        target: a file, or the name of a module.
        stdout: the descriptor that it writes its output to; None for that of this process.
        torch_compile: its graphs of `torch.compile` are recorded as well.
    """

    target: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    stdout: int | None = None
    torch_compile: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words that Python takes."""
        return (*(("-m",) if self.is_module else ()), self.target, *self.arguments)

    @property
    def python_command(self) -> tuple[str, ...]:
        """The command line that runs it."""
        return (sys.executable, *self.words)


class ScriptProcess:
    """A running script. It ends by itself, or at a time limit that was asked for."""

    def __init__(self, script: UserScript, environment: Mapping[str, str], run: Path) -> None:
        """Starts the process.

        Args:
            run: the directory for stderr.log.

        Raises:
            OSError: it cannot be started.
        """
        self._run = run
        self._stderr, written = _terminal() if sys.stderr.isatty() else os.pipe()
        try:
            self._child = subprocess.Popen(
                script.python_command, stdout=script.stdout, stderr=written, env=dict(environment)
            )
        except OSError:
            os.close(self._stderr)
            raise
        finally:
            os.close(written)
        self.pid = self._child.pid

    def watch(self, observer: Observer, limits: Limits, stopwatch: Stopwatch) -> Report:
        """Waits for its end; signals that this process gets meanwhile are the script's.

        One that exceeds the limits writes its stacks, and is killed with all processes that it has started.
        """
        report = Report(stopwatch, stage=RunStage.CALL)
        watchdog = ScriptWatchdog(limits, self._run)
        pipes = {"stderr": self._stderr}
        with (
            os.fdopen(self._stderr),
            _signals_passed_on(self._child),
            ProcessOutput(self._run, pipes, report, observer) as output,
        ):
            while output.is_open:
                ended = self._child.poll() is not None
                has_passed = output.pass_on()
                observer.tick()
                if ended and not has_passed:
                    break  # a process that it started still has the pipe open
                if not ended and not report.kill_reason:
                    report.kill_reason = self._kill_for(watchdog.exceeded_limit())
            report.returncode = self._child.wait()
            report.unix_time = time.time()
            report.log_failure = output.log_failure
        return report

    def _kill_for(self, reason: str) -> str:
        """Kills the script and returns the reason; "" if there is no reason, or the script has ended."""
        if not reason or self._child.poll() is not None:
            return ""
        request_all_stacks(self.pid, self._run)
        child_process.kill_with_descendants(self.pid)
        return reason


def _terminal() -> tuple[int, int]:
    """A terminal of the size of that of stderr, which changes nothing that is written to it.

    Returns:
        The descriptors to read from, and to write to.
    """
    reading, written = os.openpty()
    tty.setraw(written)
    size = struct.pack("HHHH", 0, 0, 0, 0)
    fcntl.ioctl(written, termios.TIOCSWINSZ, fcntl.ioctl(sys.stderr.fileno(), termios.TIOCGWINSZ, size))
    return reading, written


@contextmanager
def _signals_passed_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    def ignore(number: int, _: object) -> None:
        """Not SIG_IGN, which the script would have inherited."""

    def pass_on(number: int, _: object) -> None:
        child.send_signal(number)

    handlers = {**dict.fromkeys(_FROM_TERMINAL, ignore), **dict.fromkeys(_PASSED_ON, pass_on)}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
