"""Starts a fork server, and Python processes from it."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import IO

from aoti_debug.base.machine.processes import child_process, fork_server
from aoti_debug.base.machine.processes.child_process import Child
from aoti_debug.base.machine.processes.fork_server import READY, STATUS, ForkRequest, PythonCommand

NEW_PROCESS = "aoti_debug.base.machine.processes.module_process"
MODULE = "aoti_debug.base.machine.processes.fork_server"
_CHUNK = 1 << 16
_LAST_WORDS_SECONDS = 0.2
_OUR_PREFIX = "AOTI_DEBUG_"


class ForkServerError(Exception):
    """The server did not fork: it has ended, or the system denied it."""


class ForkServer:
    """A fork server; `close` ends it, with its children.

    It starts with its first child, or earlier by `preload`. A child that is started before the modules are imported
    waits for that.

    Attributes:
        modules: the modules that it imports; they must not start threads.
        environment: the variables that it starts with, which the imported modules may read.
        failure: why it does not serve, a sentence without its end; "" as long as it does.
    """

    def __init__(
        self,
        modules: Sequence[str],
        user_modules: Sequence[str],
        environment: Mapping[str, str],
        read_late: Collection[str],
    ) -> None:
        """Describes a server that has not started yet.

        Args:
            user_modules: imported as well, if no thread or CUDA context comes of it; otherwise it does not serve.
            read_late: variables that may differ in a child, beside our own: no module reads them when it is imported.
        """
        self.modules = frozenset(modules)
        self.environment = dict(environment)
        self.failure = ""
        self._read_late = frozenset(read_late)
        self._imported = self.modules.union(user_modules)
        self._words = [",".join(modules), *user_modules]
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._process: Child | None = None
        self._is_ready = False

    def close(self) -> None:
        """Ends the server and its children."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.__exit__(None, None, None)

    def has(self, module: str) -> bool:
        """True if the server imports a module, for us or for the user."""
        return module in self._imported

    def fits(self, environment: Mapping[str, str]) -> bool:
        """True if the imported modules cannot tell these variables from those that the server was started with."""
        names = {*self.environment, *environment}
        changed = {name for name in names if self.environment.get(name) != environment.get(name)}
        return all(name in self._read_late or name.startswith(_OUR_PREFIX) for name in changed)

    def preload(self) -> None:
        """Starts the server, which imports its modules in the background; does nothing if it has started."""
        with self._lock:
            if self._channel is not None or self.failure:
                return
            try:
                self._channel, other_side = socket.socketpair()
                with other_side:
                    self._process = Child(
                        [sys.executable, "-u", "-m", NEW_PROCESS, MODULE, str(other_side.fileno()), *self._words],
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        environment=self.environment,
                        pass_fds=(other_side.fileno(),),
                    )
            except OSError as error:
                self.failure = f"it cannot be started: {error.strerror}"

    def connect(self, channel: socket.socket) -> None:
        """Uses a server that another process has started, with these modules, and that ends when the channel is closed.

        Args:
            channel: its other side is the server's.
        """
        with self._lock:
            self._channel = channel

    def wait(self) -> None:
        """Waits until the server has imported its modules, or has failed."""
        self.preload()
        with self._lock:
            if self._is_ready or self.failure or self._channel is None:
                return
            first = b""
            with contextlib.suppress(ConnectionError):
                first = self._channel.recv(len(READY))
            self._is_ready = first == READY
            if not self._is_ready:
                self.failure = self._read_failure(self._channel, first)

    def start(
        self,
        command: PythonCommand,
        environment: Mapping[str, str],
        *,
        stdout: int,
        stderr: int,
        inherited: int | None = None,
    ) -> Child:
        """Forks a process that executes a command.

        Args:
            environment: all variables of the process.
            stdout, stderr: `subprocess.PIPE`, `subprocess.DEVNULL`, a descriptor, or, for stderr, `subprocess.STDOUT`.
            inherited: a descriptor that the process inherits, in place of `request.DESCRIPTOR` in its arguments.

        Raises:
            ForkServerError: no process was started.
        """
        self.wait()
        channel = self._channel
        if self.failure or channel is None:
            raise ForkServerError(self.failure)
        status, status_writer = os.pipe()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            ours.callback(os.close, status)
            theirs.callback(os.close, status_writer)
            out = _Output(stdout, ours, theirs)
            err = out if stderr == subprocess.STDOUT else _Output(stderr, ours, theirs)
            descriptors = [status_writer, out.descriptor, err.descriptor, *([] if inherited is None else [inherited])]
            request = ForkRequest(command, dict(environment), os.getcwd(), inherited is not None)
            try:
                with self._lock:
                    fork_server.send(channel, request, descriptors)
            except OSError as error:
                raise self._failed(channel) from error
            theirs.close()
            pid = _read_status(status)
            if pid is None:
                raise self._failed(channel)
            ours.pop_all()
        return ForkedChild(_ForkedProcess(pid, status, out.reader, None if err is out else err.reader))

    def _failed(self, channel: socket.socket) -> ForkServerError:
        """Reads why the server does not serve, and remembers it."""
        with self._lock:
            self.failure = self.failure or self._read_failure(channel)
        return ForkServerError(self.failure)

    def _read_failure(self, channel: socket.socket, text: bytes = b"") -> str:
        """What the server says why it does not serve.

        Args:
            text: what was already read of it.
        """
        channel.settimeout(_LAST_WORDS_SECONDS)
        try:
            while part := channel.recv(_CHUNK):
                text += part
        except TimeoutError:
            return "the system does not let it fork"
        except ConnectionError:  # it has ended without reading a request
            pass
        if text:
            return text.decode(errors="replace")
        if self._process is None:
            return "it ended"
        return f"it ended: {child_process.describe_exit(self._process.wait())}"


class _Output:
    """A descriptor for a stream of the child, and this side's end if it is a pipe."""

    def __init__(self, target: int, ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> None:
        self.descriptor = target
        self.reader: IO[bytes] | None = None
        if target == subprocess.PIPE:
            read_end, self.descriptor = os.pipe()
            self.reader = ours.enter_context(os.fdopen(read_end, "rb", buffering=0))
        elif target == subprocess.DEVNULL:
            self.descriptor = os.open(os.devnull, os.O_WRONLY)
        if self.descriptor != target:
            theirs.callback(os.close, self.descriptor)


def _read_status(descriptor: int) -> int | None:
    """The next number that the server sends of a process; None if it has ended."""
    data = os.read(descriptor, STATUS.size)
    return STATUS.unpack(data)[0] if len(data) == STATUS.size else None


class ForkedChild(Child):
    """A process that a fork server forked."""

    def __init__(self, forked: _ForkedProcess) -> None:
        self._process = forked
        self.pid = forked.pid
        self.stdout = forked.stdout
        self.stderr = forked.stderr


class _ForkedProcess:
    """The part of `subprocess.Popen` that Child uses, for a process that is not a child of this one."""

    def __init__(self, pid: int, status: int, stdout: IO[bytes] | None, stderr: IO[bytes] | None) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self._status = status
        self._lock = threading.Lock()
        self._code: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        with self._lock:
            if self._code is None:
                if not select.select([self._status], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
                code = _read_status(self._status)
                os.close(self._status)
                self._code = -signal.SIGKILL if code is None else code  # the end of the server kills its children
            return self._code

    def communicate(self, *, timeout: float | None = None) -> tuple[bytes | None, bytes | None]:
        deadline = None if timeout is None else time.monotonic() + timeout
        texts = {stream: bytearray() for stream in (self.stdout, self.stderr) if stream is not None}
        with selectors.DefaultSelector() as selector:
            for stream in texts:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                remaining = None if deadline is None else max(deadline - time.monotonic(), 0)
                ready = selector.select(remaining)
                if not ready and remaining == 0:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
                for key, _ in ready:
                    data = os.read(key.fd, _CHUNK)
                    texts[key.fileobj] += data  # type: ignore[index]
                    if not data:
                        selector.unregister(key.fileobj)
        self.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
        return tuple(None if s is None else bytes(texts[s]) for s in (self.stdout, self.stderr))  # type: ignore[return-value]
