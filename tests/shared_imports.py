"""Fork servers that share their imports: `python -m shared_imports SOCKET MODULES` imports once, and forks them.

Each process that the tests are spread over has a fork server of its own; to import torch and to lower a first program
would take each of them many seconds.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from aoti_debug.machine.fork_server import server
from aoti_debug.machine.processes.child_process import Child

SOCKET = "SHARED_IMPORTS_SOCKET"  # its path, for the processes that the tests are spread over


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
            [sys.executable, "-m", "shared_imports", str(number), ",".join(modules)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            environment=environment,
            pass_fds=(number,),
        ):
            os.environ[SOCKET] = path
            try:
                yield
            finally:
                del os.environ[SOCKET]


def connection() -> socket.socket:
    """A channel to a fork server of its own."""
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(os.environ[SOCKET])
    return channel


def main() -> None:
    """Imports the modules and forks a server for each connection; in a child of such a server, executes its command."""
    number, modules = sys.argv[1:]
    environment = dict(os.environ)
    server.import_modules(modules.split(","))
    changes = server.changes(environment)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no server is waited for
    listener = socket.socket(fileno=int(number))
    while True:
        channel, _ = listener.accept()
        if os.fork() == 0:
            break
        channel.close()
    listener.close()
    command = server.Server(channel, changes).serve()
    if command is not None:
        server.execute(command)


if __name__ == "__main__":
    main()
