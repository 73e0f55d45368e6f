"""Child processes that can be killed with all their descendants; how a process ended; changes of the environment."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import torch_settings


@contextlib.contextmanager
def changed_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables of this process, and what they were before at the end.

    So they are then for C functions, too: processes that are started inherit what these see, which os.putenv may have
    made something else.
    """
    before = {name: os.environ.get(name) for name in variables}
    of_c = {name: _seen_by_c(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
            if (inherited := of_c[name]) is not None:
                os.putenv(name, inherited)


def _seen_by_c(name: str) -> bytes | None:
    """The value of a variable for C functions."""
    getenv = ctypes.PyDLL(None).getenv  # which lets no other thread of Python change the environment meanwhile
    getenv.restype = ctypes.c_char_p
    value: bytes | None = getenv(os.fsencode(name))
    return value


@contextlib.contextmanager
def sharing_search_path(*folders: str | Path) -> Iterator[None]:
    """Lets this process and the Python processes that it starts find the modules in some folders.

    The others find what this one finds as well, whatever has changed its search path.
    """
    before = list(sys.path)
    sys.path += map(str, folders)
    try:
        with changed_environment({"PYTHONPATH": os.pathsep.join(sys.path)}):
            yield
    finally:
        sys.path[:] = before


@contextlib.contextmanager
def sharing_torch_settings() -> Iterator[None]:
    """Hands the settings of torch of this process to the processes that it starts. Imports torch."""
    with changed_environment(torch_settings.environment(torch_settings.capture())):
        yield


def signal_name(number: int) -> str:
    """The name of a signal, "SIGSEGV"; "signal 40" if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class RunningProcess(Protocol):
    """The part of `subprocess.Popen` that Child needs."""

    pid: int
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def poll(self) -> int | None:
        """Returns the exit code; None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit code."""

    def communicate(self, *, timeout: float | None = None) -> tuple[bytes | None, bytes | None]:
        """Reads the pipes to their ends, and waits for the exit code."""


class Child:
    """A process in its own process group, which can be killed together with all processes that it started.

    At the end of a `with` they are killed, and the process is waited for.
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
        """Starts the process.

        Args:
            stdout, stderr: as in `subprocess.Popen`.
            environment: all variables of the process; None to inherit those of this one.
            pass_fds: file descriptors that the process inherits.

        Raises:
            OSError: it cannot be started.
        """
        self._process: RunningProcess = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=None if environment is None else dict(environment),
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.stdout = self._process.stdout  # open for reading if it is a pipe, else None
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
        """Returns the exit code like `wait`; None while the process runs."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit code; it is the negative number of a signal that ended the process.

        Args:
            timeout: seconds; None for no limit.

        Raises:
            subprocess.TimeoutExpired: the process still runs.
        """
        return self._process.wait(timeout)

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Reads the pipes of stdout and stderr until every process has closed them; b"" for one that is not a pipe.

        Raises:
            subprocess.TimeoutExpired: they are still open after `timeout` seconds.
        """
        stdout, stderr = self._process.communicate(timeout=timeout)
        return stdout or b"", stderr or b""

    def kill(self) -> None:
        """Sends SIGKILL to the process and its descendants that are still alive; does not wait.

        A process that hangs in the device driver reacts only to SIGKILL.
        """
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def kill_with_descendants(pid: int) -> None:
    """Sends SIGKILL to a process and to all that it has started, also in other process groups; does not wait."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):  # no process, or one that has ended
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    for one in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)


@dataclass(frozen=True)
class FinishedProcess:
    """A process that has ended.

    Attributes:
        code: exit code, as in `Child.wait`.
        stdout, stderr: its output.
    """

    code: int
    stdout: str
    stderr: str


class Children:
    """Processes that several threads start and wait for, and that are killed together. For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[Child] = set()
        self.killed = False

    def run(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> FinishedProcess:
        """Runs a command to its end and captures its output; after `kill` it is killed as soon as it begins.

        Args:
            environment: all variables of the process; None to inherit those of this one.

        Raises:
            OSError: it cannot be started.
        """
        with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, environment=environment) as child:
            with self._lock:
                self._running.add(child)
                if self.killed:
                    child.kill()
            try:
                stdout, stderr = child.communicate()
                return FinishedProcess(child.wait(), _text(stdout), _text(stderr))
            finally:
                with self._lock:
                    self._running.remove(child)

    def kill(self) -> None:
        """Kills all that run, and whatever begins later."""
        with self._lock:
            self.killed = True
            for child in self._running:
                child.kill()

    @contextmanager
    def killed_on_error(self) -> Iterator[None]:
        """Kills them if what is done within fails or is interrupted."""
        try:
            yield
        except BaseException:
            self.kill()
            raise


def run(command: Sequence[str], *, timeout: float, stderr: int = subprocess.PIPE) -> FinishedProcess:
    """Runs a command to its end and captures its output.

    Args:
        timeout: seconds, after which it is killed with its descendants.
        stderr: `subprocess.STDOUT` to merge it into `FinishedProcess.stdout`.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it was killed.
    """
    with Child(command, stdout=subprocess.PIPE, stderr=stderr) as child:
        return finished(child, timeout)


def finished(child: Child, timeout: float) -> FinishedProcess:
    """Waits for the end of a process whose output are pipes, and reads them.

    Args:
        timeout: seconds.

    Raises:
        subprocess.TimeoutExpired: it still runs, or one that it started has its pipes open.
    """
    stdout, errors = child.communicate(timeout)
    return FinishedProcess(child.wait(), _text(stdout), _text(errors))


def describe_end(code: int, log: Path) -> str:
    """Describes how a process ended, with the last line of its output: "exit code 3: no space left".

    Args:
        log: the file of its output.
    """
    said = log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    return f"{describe_exit(code)}{': ' if said else ''}{wording.first_line(said)}"


def describe_exit(code: int) -> str:
    """Describes how a process ended: "SIGSEGV", "exit code 3".

    Args:
        code: exit code, as in `Child.wait`.
    """
    return fatal_signal(code) or f"exit code {code}"


def fatal_signal(code: int) -> str:
    """The name of the signal that ended a process, "SIGSEGV"; "" if it exited by itself.

    Args:
        code: exit code, as in `Child.wait`.
    """
    return signal_name(-code) if code < 0 else ""


def _text(data: bytes) -> str:
    return data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
