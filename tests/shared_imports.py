"""Fork servers that share their imports: `python -m tests.shared_imports PARENT SOCKET MODULES` forks them.

Each process that the tests are spread over has a fork server of its own; to import torch and to lower a first program
would take each of them many seconds.
"""

from __future__ import annotations

import inspect
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from aoti_debug.base.machine.processes import fork_server, tied_process
from aoti_debug.base.machine.processes.child_process import Child
from tests import quick_exit

SOCKET = "SHARED_IMPORTS_SOCKET"  # its path, for the processes that the tests are spread over
_LAST_SECONDS = 5.0


@contextmanager
def shared(modules: Sequence[str], environment: Mapping[str, str]) -> Iterator[None]:
    """Until the end of the `with`, `connection` gives fork servers that have imported the modules.

    Args:
        environment: the variables that the modules are imported with.
    """
    with tempfile.TemporaryDirectory(prefix="aoti-debug-") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = os.path.join(folder, "socket")
        listener.bind(path)
        listener.listen()
        number = listener.fileno()
        with Child(
            [sys.executable, "-m", "tests.shared_imports", str(os.getpid()), str(number), ",".join(modules)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            environment=environment,
            pass_fds=(number,),
        ) as process:
            os.environ[SOCKET] = path
            try:
                yield
            finally:
                del os.environ[SOCKET]
                listener.shutdown(socket.SHUT_RDWR)
                with suppress(subprocess.TimeoutExpired):  # a server whose user hangs is killed
                    process.wait(_LAST_SECONDS)


def connection() -> socket.socket:
    """A channel to a fork server of its own."""
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(os.environ[SOCKET])
    return channel


def main() -> None:
    """Imports the modules and forks a server for each connection; in a child of such a server, executes its command.

    When nobody can connect any more, it waits for the servers: so what they have used is counted as used by the tests.
    """
    parent, number, modules = sys.argv[1:]
    tied_process.end_with(int(parent))
    environment = dict(os.environ)
    fork_server.import_modules(modules.split(","))
    _note_files_of_modules()
    channel = _forked_for_a_connection(socket.socket(fileno=int(number)))
    command = None if channel is None else fork_server.Server(channel, environment).serve()
    if command is None:
        quick_exit.leave()
    fork_server.execute(command)


def _note_files_of_modules() -> None:
    """Lets `inspect` note the files of all modules, for which a process that registers an operator would need 30 ms."""
    inspect.getmodule(compile("", "<unknown>", "exec"))


def _forked_for_a_connection(listener: socket.socket) -> socket.socket | None:
    """Forks for each connection: returns it in the child, and None here after the end of all children."""
    with listener:
        while True:
            try:
                channel, _ = listener.accept()
            except OSError:  # it was shut down
                break
            if os.fork() == 0:
                return channel
            channel.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return None


if __name__ == "__main__":
    main()
