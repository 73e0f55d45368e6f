"""Starts Python processes: forked from a process that has imported torch, where one serves, or new ones."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from aoti_debug.base.errors import TargetError
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.processes.child_process import Child
from aoti_debug.base.machine.processes.fork_client import NEW_PROCESS, ForkServer, ForkServerError
from aoti_debug.base.machine.processes.fork_server import DESCRIPTOR, PARENT, PythonCommand

__all__ = ["DESCRIPTOR", "PARENT", "PythonCommand", "ask", "forking_from", "run_to_end", "start", "wait_for_imports"]

T = TypeVar("T")

# Variables that are read when a model is lowered, loaded or called, not when torch is imported; or that are overridden.
_READ_LATE = frozenset(
    {
        *("CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTHONUNBUFFERED", "TMPDIR"),
        *("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER"),
        "_AOTI_DEBUG_TORCH_SETTINGS",  # a process takes them over when it begins its work (torch_settings.py)
        "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",  # Inductor sets it, in each process that loads what it has compiled
    }
)

# How often a waiting thread of libgomp looks for work before it sleeps. By default that takes milliseconds, in which,
# on a busy host, the threads that it waits for do not get its core.
_SPINS = {"GOMP_SPINCOUNT": "10000"}

_lock = threading.Lock()
_servers: list[ForkServer] = []
_users: Counter[ForkServer] = Counter()  # how many `with` statements use each of them


@contextlib.contextmanager
def forking_from(
    modules: Sequence[str], user_modules: Sequence[str] = (), read_late: Collection[str] = ()
) -> Iterator[ForkServer]:
    """Provides a fork server; until the end of the `with`, `start` forks from it wherever it can.

    Within another such `with`, of this thread or of another, whose server has the modules, it is that server, which
    ends with the last of them; the user's modules are then imported by each process.

    Args:
        modules, user_modules: the modules that it imports; see ForkServer.
        read_late: variables that none of them reads when it is imported.

    Yields:
        The server, not yet started.
    """
    variables = environment(os.environ)
    with _lock:
        server = next((s for s in _servers[-1:] if s.modules.issuperset(modules) and s.fits(variables)), None)
        if server is None:
            server = ForkServer(modules, user_modules, variables, _READ_LATE.union(read_late))
            _servers.append(server)
        _users[server] += 1
    try:
        yield server
    finally:
        with _lock:
            _users[server] -= 1
            is_last = _users[server] == 0
            if is_last:
                _servers.remove(server)
                del _users[server]
        if is_last:
            server.close()


def wait_for_imports(variables: Mapping[str, str], after: str = "torch") -> None:
    """Waits until the fork server that `start` would use, if there is one, has imported its modules."""
    for server in _servers_for(variables, after):
        server.wait()


def start(
    command: PythonCommand,
    variables: Mapping[str, str],
    *,
    stdout: int,
    stderr: int,
    inherited: int | None = None,
    after: str = "torch",
) -> Child:
    """Starts a Python process.

    It is forked from the fork server if that has imported what it needs, and its variables differ from the server's
    only in such as are read late.

    Args:
        variables: its environment; for a module, the directory of aoti_debug is added to its PYTHONPATH.
        stdout, stderr: `subprocess.PIPE`, `subprocess.DEVNULL`, a descriptor, or, for stderr, `subprocess.STDOUT`.
        inherited: a descriptor that it inherits, in place of DESCRIPTOR in its arguments.
        after: the module that takes it long to import: only a server that has imported it is of use.

    Raises:
        OSError: it cannot be started.
    """
    complete = environment(variables) if command.module else _waiting_briefly(variables)
    for server in _servers_for(variables, after):
        with contextlib.suppress(ForkServerError):
            return server.start(command, complete, stdout=stdout, stderr=stderr, inherited=inherited)
    words = ["-m", NEW_PROCESS, command.module] if command.module else [command.script]
    return Child(
        [sys.executable, *words, *command.filled_in(os.getpid(), inherited)],
        stdout=stdout,
        stderr=stderr,
        environment=complete,
        pass_fds=() if inherited is None else (inherited,),
    )


def run_to_end(command: PythonCommand, log: Path, *, seconds: float) -> int:
    """Executes a command in this process's environment and waits for its end.

    Args:
        log: a file for its output.
        seconds: the time after which it is killed.

    Returns:
        Its exit status; that of SIGKILL if it was killed.

    Raises:
        TargetError: it cannot be started.
    """
    with log.open("wb") as output:
        try:
            child = start(command, os.environ, stdout=output.fileno(), stderr=subprocess.STDOUT)
        except OSError as error:
            raise TargetError(
                f"a process of {command.module or command.script} cannot be started: {error.strerror}",
                hint="aoti-debug doctor checks this machine",
            ) from error
        with child:
            try:
                return child.wait(seconds)
            except subprocess.TimeoutExpired:
                return -signal.SIGKILL


def ask(
    worker: str, request: object, answer: type[T], folder: Path, name: str, *, seconds: float
) -> tuple[T | None, int]:
    """Has a process answer a request: `python -m WORKER REQUEST.json ANSWER.json`.

    Args:
        worker: the module that answers.
        answer: the class of the answer.
        folder: for NAME.json, the answer, and NAME.log, the output of the process.
        seconds: the time after which it is killed.

    Returns:
        The answer, None if it left none that is whole; and the exit status of the process.

    Raises:
        TargetError: it cannot be started.
    """
    question, answered, log = (folder / f"{name}{suffix}" for suffix in (".request.json", ".json", ".log"))
    answered.unlink(missing_ok=True)
    question.write_text(json_data.to_text(request, indent=None), encoding="utf-8")
    status = run_to_end(PythonCommand(worker, arguments=(str(question), str(answered))), log, seconds=seconds)
    question.unlink()
    with contextlib.suppress(FileNotFoundError, json_data.DamagedJsonError):
        return json_data.parse(answer, answered.read_bytes()), status
    return None, status


def _servers_for(variables: Mapping[str, str], after: str) -> list[ForkServer]:
    """The servers that have imported a module and fit the variables, the newest first."""
    complete = environment(variables)
    return [server for server in reversed(_servers) if server.has(after) and server.fits(complete)]


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables, with the directory of aoti_debug at the end of PYTHONPATH."""
    library = str(Path(__file__).resolve().parents[4])
    search = [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {**_waiting_briefly(variables), "PYTHONPATH": os.pathsep.join(dict.fromkeys([*search, library]))}


def _waiting_briefly(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables; where they leave it open, threads of OpenMP that wait for others soon sleep."""
    return {**({} if "OMP_WAIT_POLICY" in variables else _SPINS), **variables}
