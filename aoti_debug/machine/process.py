"""A child process that can be killed with everything that it started, and how a process ended, as text."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO


class Child:
    """A process that leads a session of its own: it and all that it started can be killed, and nothing else is.

    At the end of a `with`, however it is left, they are dead and the process is waited for.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """
        Args:
            stdout, stderr: as of `subprocess.Popen`.
            environment: all variables of the process; None for those of this one.
            pass_fds: descriptors that the process keeps.

        Raises:
            OSError: it cannot be started.
        """
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=None if environment is None else dict(environment),
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.stdout = self._process.stdout  # what can be read of it, where it is a pipe
        self.stderr = self._process.stderr

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self._process.wait()
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()

    def poll(self) -> int | None:
        """The process's exit code, as `wait`; None while it runs."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """The process's exit code; the negative number of the signal that ended it.

        Args:
            timeout: seconds; None for any time.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        return self._process.wait(timeout)

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """All that the pipes of stdout and stderr give until every process has closed them; b"" of what is no pipe.

        Raises:
            subprocess.TimeoutExpired: they are still open after `timeout` seconds.
        """
        stdout, stderr = self._process.communicate(timeout=timeout)
        return stdout or b"", stderr or b""

    def kill(self) -> None:
        """Sends SIGKILL to the process and to those that it started, if they still live; does not wait. A process that
        hangs in the device's driver reacts to nothing but SIGKILL."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


@dataclass(frozen=True)
class Ended:
    """A process that has ended.

    Attributes:
        code: as of `Child.wait`.
        stdout, stderr: what it wrote.
    """

    code: int
    stdout: str
    stderr: str


def run(command: Sequence[str], *, timeout: float, stderr: int = subprocess.PIPE) -> Ended:
    """Runs a command to its end and keeps what it wrote.

    Args:
        timeout: seconds; then it is killed, with all that it started.
        stderr: `subprocess.STDOUT`: what goes there is part of `Ended.stdout`.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it was killed.
    """
    with Child(command, stdout=subprocess.PIPE, stderr=stderr) as child:
        written, complaints = child.communicate(timeout)
        return Ended(child.wait(), _text(written), _text(complaints))


def ending(code: int) -> str:
    """How a process ended: "SIGSEGV", "exit code 3".

    Args:
        code: as of `Child.wait`.
    """
    return killed_by(code) or f"exit code {code}"


def killed_by(code: int) -> str:
    """The signal that ended a process, "SIGSEGV"; "" where it ended by itself.

    Args:
        code: as of `Child.wait`.
    """
    return signal_name(-code) if code < 0 else ""


def signal_name(number: int) -> str:
    """The name of a signal, "SIGSEGV"; "signal 40" for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _text(data: bytes) -> str:
    return data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
