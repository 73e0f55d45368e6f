"""The process of a user's own script: its standard input and output stay as they are, stderr is kept as well."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.steps import Stopwatch
from aoti_debug.runs.run.supervise import Observer, ProcessOutput, Report
from aoti_debug.runs.rundir.run_json import RunStage

_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)  # the terminal sends them to the script as well
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class UserScript:
    """A script with its arguments.

    Attributes:
        target: a file, or the name of a module.
        stdout: the descriptor that it writes its output to; None for that of this process.
    """

    target: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    stdout: int | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The words that Python takes."""
        return (*(("-m",) if self.is_module else ()), self.target, *self.arguments)

    @property
    def python_command(self) -> tuple[str, ...]:
        """The command line that runs it."""
        return (sys.executable, *self.words)


class ScriptProcess:
    """A running script. It ends by itself."""

    def __init__(self, script: UserScript, environment: Mapping[str, str], run: Path) -> None:
        """Starts the process.

        Args:
            run: the directory for stderr.log.

        Raises:
            OSError: it cannot be started.
        """
        self._run = run
        self._child = subprocess.Popen(
            script.python_command, stdout=script.stdout, stderr=subprocess.PIPE, env=dict(environment)
        )
        self.pid = self._child.pid

    def watch(self, observer: Observer, stopwatch: Stopwatch) -> Report:
        """Waits for its end; signals that this process gets meanwhile are the script's."""
        assert self._child.stderr is not None
        report = Report(stopwatch, stage=RunStage.CALL)
        pipes = {"stderr": self._child.stderr.fileno()}
        with (
            self._child.stderr,
            _signals_passed_on(self._child),
            ProcessOutput(self._run, pipes, report, observer) as output,
        ):
            while output.is_open:
                ended = self._child.poll() is not None
                has_passed = output.pass_on()
                observer.tick()
                if ended and not has_passed:
                    break  # a process that it started still has the pipe open
            report.returncode = self._child.wait()
            report.unix_time = time.time()
            report.log_failure = output.log_failure
        return report


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
