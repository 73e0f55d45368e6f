"""The server process and its requests: `python -m aoti_debug.base.machine.processes.fork_server SOCKET MODULES USER…`.

It imports the MODULES (comma-separated) and the user's, then forks a child for every request that arrives on the
socket, and says when it begins to. It ends when the other side of the socket is closed, and its children with it. If a
user's module is not fork-safe, it sends a sentence that says so instead, and ends.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.processes import tied_process

PARENT = "{parent}"  # in an argument: replaced by the id of the parent process
DESCRIPTOR = "{descriptor}"  # replaced by the number of the inherited file descriptor
_LENGTH = struct.Struct("<Q")
_MAX_DESCRIPTORS = 4


@dataclass(frozen=True)
class PythonCommand:
    """The code that a Python process executes: the function `main` of a module, or a script.

    Attributes:
        module: "aoti_debug.runs.run.worker"; "" for a script.
        script: its path; "" for a module.
        arguments: `sys.argv` from 1 on; PARENT and DESCRIPTOR in them are replaced.
    """

    module: str = ""
    script: str = ""
    arguments: tuple[str, ...] = ()

    def filled_in(self, parent: int, descriptor: int | None) -> tuple[str, ...]:
        """The arguments with their replacements."""
        replacements = {PARENT: str(parent), DESCRIPTOR: str(descriptor)}
        return tuple(replacements.get(word, word) for word in self.arguments)


@dataclass(frozen=True)
class ForkRequest:
    """The request to fork.

    Attributes:
        environment: all variables of the child.
        directory: its working directory.
        inherits: True if a descriptor for `command` follows those of its output.
    """

    command: PythonCommand
    environment: Mapping[str, str]
    directory: str
    inherits: bool


def send(channel: socket.socket, request: ForkRequest, descriptors: list[int]) -> None:
    """Sends a request.

    Args:
        descriptors: for the child's status, stdout and stderr, and the inherited one.

    Raises:
        OSError: the server is gone.
    """
    text = json_data.to_text(request, indent=None).encode()
    socket.send_fds(channel, [_LENGTH.pack(len(text))], descriptors)
    channel.sendall(text)


def receive(channel: socket.socket) -> tuple[ForkRequest, list[int]] | None:
    """Waits for a request and its descriptors; None if the other side has gone."""
    header, descriptors, _, _ = socket.recv_fds(channel, _LENGTH.size, _MAX_DESCRIPTORS)
    if len(header) < _LENGTH.size:
        return None
    text = b""
    (length,) = _LENGTH.unpack(header)
    while len(text) < length:
        part = channel.recv(length - len(text))
        if not part:
            return None
        text += part
    return json_data.parse(ForkRequest, text), descriptors


STATUS = struct.Struct("<q")  # the child's process id, then its exit code as in subprocess.Popen.returncode
READY = b"\0"  # sent when the modules are imported
_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)  # those that buffer what is written


def main() -> None:
    """Serves until the other side has gone; in a child, executes the command of its request."""
    descriptor, modules, *user_modules = sys.argv[1:]
    channel = socket.socket(fileno=int(descriptor))
    environment = dict(os.environ)
    import_modules(modules.split(","))
    output = _ImportOutput()
    refusal = _import_user_modules(user_modules)
    output.end()
    if refusal:
        channel.sendall(refusal.encode())
        os._exit(0)  # at once: a thread of the module may never end
    command = Server(channel, environment).serve()
    if command is not None:
        output.repeat()
        execute(command)


def import_modules(modules: Sequence[str]) -> None:
    """Imports modules, whose objects and exit handlers the children of this process then leave alone."""
    gc.disable()
    for module in modules:
        with contextlib.suppress(Exception, SystemExit):  # the child imports it again and reports the error
            importlib.import_module(module)
    gc.freeze()  # not the user's: some modules complain at exit of objects that were not collected, or leave files open
    gc.enable()
    _skip_exit_handlers()


def _import_user_modules(modules: Sequence[str]) -> str:
    """Imports modules; returns the reason why this process must not fork now, or "" """
    threads, driver = _threads(), _has_driver()
    for module in modules:
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - each process meets the same error and reports it
            return f"the module {module} cannot be imported: {type(error).__name__}: {error}"
        started = _threads() - threads
        if started > 0:
            return f"the module {module} starts {wording.pluralize(started, 'thread')} when it is imported"
        if _has_driver() != driver or _breaks_cuda_in_forks():
            return f"the module {module} initialises CUDA when it is imported"
    return ""


def _has_driver() -> bool:
    """True if the library of the CUDA driver is loaded."""
    return "libcuda.so" in Path("/proc/self/maps").read_text(errors="replace")


def _breaks_cuda_in_forks() -> bool:
    """True if torch says that a fork of this process cannot use CUDA: it has asked for the devices, for one."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    child = os.fork()
    if child == 0:
        os._exit(int(torch.cuda._is_in_bad_fork()))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def _skip_exit_handlers() -> None:
    """Leaves out, at the ends of this process and its children, what modules and libraries do that are loaded by now.

    Destructors of torch's libraries and finalisers of its modules take 0.2 s: they take tables apart whose memory is
    freed anyway, and copy its pages for that after a fork. What is loaded later has its exit handlers and destructors
    of C++ called, but not functions with `__attribute__((destructor))`; buffered output of C and C++ is written. Where
    libc does not have what this needs (it is glibc's), nothing is left out.
    """
    for finaliser in getattr(weakref.finalize, "_registry", ()):
        finaliser.atexit = False
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit") and hasattr(libc, "__cxa_atexit"):
        libc.on_exit(libc._exit, None)  # handlers are called in reverse order: this is the last
        libc.__cxa_atexit(libc.fflush, None, None)
        with contextlib.suppress(OSError, AttributeError, ValueError):  # no libstdc++: no streams of C++ either
            streams = ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            for name in ("_ZSt4cout", "_ZSt4clog"):
                stream = ctypes.c_char.in_dll(streams, name)
                libc.__cxa_atexit(streams._ZNSo5flushEv, ctypes.byref(stream), None)


def changed(asked: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a child: those asked for, with what the imported modules have set or removed.

    A variable that is asked for with another value than the modules found has that value: Inductor's first call sets
    its own cache where none is set, and a child that is given another would use it.

    Args:
        before, after: the variables of the server before and after the import of the modules.
    """
    own = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    taken = {name for name in own if asked.get(name) == before.get(name)}
    kept = {name: value for name, value in asked.items() if name not in taken}
    return {**kept, **{name: after[name] for name in taken if name in after}}


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


class _ImportOutput:
    """What the user's modules print when they are imported: every child prints it again."""

    def __init__(self) -> None:
        self._saved = [os.dup(descriptor) for descriptor in (1, 2)]
        self._files = [os.memfd_create(name) for name in ("stdout", "stderr")]
        for file, descriptor in zip(self._files, (1, 2), strict=True):
            os.dup2(file, descriptor)

    def end(self) -> None:
        """Stops collecting."""
        for saved, descriptor in zip(self._saved, (1, 2), strict=True):
            os.dup2(saved, descriptor)
            os.close(saved)

    def repeat(self) -> None:
        """Prints it, in a child."""
        for file, descriptor in zip(self._files, (1, 2), strict=True):
            os.write(descriptor, os.pread(file, os.fstat(file).st_size, 0))
            os.close(file)


def execute(command: PythonCommand) -> NoReturn:
    """Executes a command as a new interpreter would, and ends the process."""
    try:
        if command.module:
            sys.argv = [command.module, *command.arguments]
            _begin_path(os.getcwd())
            sys.exit(importlib.import_module(command.module).main())
        sys.argv = [command.script, *command.arguments]
        _begin_path(str(Path(command.script).resolve().parent))
        runpy.run_path(command.script, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if code == 1 and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - as the interpreter does with every exception
        traceback.print_exception(error)
        code = 1
    _end(code)


def _begin_path(folder: str) -> None:
    """Makes a folder the first entry of the module search path, where the interpreter has such an entry."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def _end(code: int) -> NoReturn:
    """Ends the process with its exit handlers, without the slow destruction of every object of the interpreter."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
    atexit._run_exitfuncs()
    for file in [sys.stdout, sys.stderr, *(obj for obj in gc.get_objects() if issubclass(type(obj), _FILES))]:
        with contextlib.suppress(Exception):
            file.flush()
    ctypes.PyDLL(None).exit(code)  # also runs the exit handlers and destructors of libraries loaded since the fork
    os._exit(code)


class Server:
    """Forks on request and reports how each child ended."""

    def __init__(self, channel: socket.socket, environment: Mapping[str, str]) -> None:
        """Begins to watch for the ends of children.

        Args:
            environment: the variables before the modules were imported.
        """
        self._channel = channel
        self._environment = environment
        self._process = os.getpid()
        self._statuses: dict[int, int] = {}  # descriptors for the status, by process
        self._wake, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_up)

    def serve(self) -> PythonCommand | None:
        """Says that it is ready, and forks; returns None at the end, and the command in a child."""
        with contextlib.suppress(BrokenPipeError):
            self._channel.sendall(READY)
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj == self._wake:
                        self._reap()
                        continue
                    received = receive(self._channel)
                    if received is None:
                        return None
                    request, descriptors = received
                    if self._fork(descriptors) == 0:
                        selector.close()
                        return self._begin_child(request, descriptors)

    def _fork(self, descriptors: Sequence[int]) -> int:
        """Forks; in the server, keeps the first descriptor for the child's status and closes the others."""
        status, *others = descriptors
        try:
            child = os.fork()
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            return -1
        if child == 0:
            return 0
        with contextlib.suppress(OSError):  # the child may have done so, or have ended
            os.setpgid(child, child)
        self._statuses[child] = status
        _report(status, child)
        for descriptor in others:
            os.close(descriptor)
        return child

    def _reap(self) -> None:
        """Reports the exit codes of the children that have ended."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake, 512):
                pass
        for child in list(self._statuses):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                descriptor = self._statuses.pop(child)
                _report(descriptor, os.waitstatus_to_exitcode(status))
                os.close(descriptor)

    def _begin_child(self, request: ForkRequest, descriptors: Sequence[int]) -> PythonCommand:
        """Makes this process look like a new one: signals, descriptors, environment, working directory."""
        os.setpgid(0, 0)
        tied_process.end_with(self._process)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status, stdout, stderr, *inherited = descriptors
        for descriptor in (status, self._wake, self._wake_writer, *self._statuses.values()):
            os.close(descriptor)
        self._channel.close()
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        for descriptor in {stdout, stderr}:
            os.close(descriptor)
        inheritable = True
        for descriptor in inherited:
            os.set_inheritable(descriptor, inheritable)
        variables = changed(request.environment, self._environment, os.environ)
        os.environ.clear()
        os.environ.update(variables)
        tempfile.tempdir = None  # TMPDIR may be another one
        os.chdir(request.directory)
        inherited_number = inherited[0] if request.inherits else None
        return replace(request.command, arguments=request.command.filled_in(self._process, inherited_number))


def _report(descriptor: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits for this child any more
        os.write(descriptor, STATUS.pack(number))


def _wake_up(number: int, frame: object) -> None:
    """Does nothing: the signal's number in the wake-up pipe ends the waiting."""


if __name__ == "__main__":
    main()
