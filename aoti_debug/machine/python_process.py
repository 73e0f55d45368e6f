"""Starts Python processes: forked from a process that has imported torch, where one serves, or new ones."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import aoti_debug
from aoti_debug.machine.fork_server.client import ForkServer, ForkServerError
from aoti_debug.machine.fork_server.request import DESCRIPTOR, PARENT, PythonCommand
from aoti_debug.machine.process import Child

__all__ = ["DESCRIPTOR", "PARENT", "PythonCommand", "forking_from", "start"]

# Variables that are read when a model is loaded or called, and not when torch is imported.
_READ_LATE = frozenset({"CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTHONUNBUFFERED"})
_READ_LATE_PREFIX = "AOTI_DEBUG_"

_servers: list[ForkServer] = []


@contextlib.contextmanager
def forking_from(modules: Sequence[str], user_modules: Sequence[str] = ()) -> Iterator[ForkServer | None]:
    """Starts a fork server; until the end of the `with`, `start` forks from it wherever it can.

    Args:
        modules, user_modules: the modules that it imports; see ForkServer.

    Yields:
        The server; None where the system cannot start it.
    """
    try:
        server = ForkServer(modules, user_modules, environment(os.environ))
    except OSError:
        yield None
        return
    with server:
        _servers.append(server)
        try:
            yield server
        finally:
            _servers.remove(server)


def start(
    command: PythonCommand,
    variables: Mapping[str, str],
    *,
    stdout: int,
    stderr: int,
    inherited: int | None = None,
) -> Child:
    """Starts a Python process.

    It is forked from the fork server if its variables differ from the server's only in such as are read late.

    Args:
        variables: its environment; for a module, the directory of aoti_debug is added to its PYTHONPATH.
        stdout, stderr: `subprocess.PIPE`, `subprocess.DEVNULL`, a descriptor, or, for stderr, `subprocess.STDOUT`.
        inherited: a descriptor that it inherits, in place of DESCRIPTOR in its arguments.

    Raises:
        OSError: it cannot be started.
    """
    complete = environment(variables) if command.module else dict(variables)
    for server in _servers[-1:]:
        if not _changed(server.environment, environment(variables)):
            with contextlib.suppress(ForkServerError):
                return server.start(command, complete, stdout=stdout, stderr=stderr, inherited=inherited)
    words = ["-m", command.module] if command.module else [command.script]
    return Child(
        [sys.executable, *words, *command.filled_in(os.getpid(), inherited)],
        stdout=stdout,
        stderr=stderr,
        environment=complete,
        pass_fds=() if inherited is None else (inherited,),
    )


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables, with the directory of aoti_debug at the end of PYTHONPATH."""
    library = str(Path(aoti_debug.__file__).resolve().parent.parent)
    search = [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {**variables, "PYTHONPATH": os.pathsep.join(dict.fromkeys([*search, library]))}


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """The names of variables that differ and may have been read at import."""
    different = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return {name for name in different if name not in _READ_LATE and not name.startswith(_READ_LATE_PREFIX)}
