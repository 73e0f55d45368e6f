"""Runs worker processes, which ask torch for what a build needs, and explains how they fail.

Every lowering has its own cache of Inductor, because kernel binaries are named by kernel in `package_cpp_only` mode and
a file that exists is kept: a second specialisation would get the first one's machine code. At the beginning it has hard
links to the results of earlier lowerings about this machine (instruction sets, autotuning); new results are linked back
at the end. What autotuning has chosen for the user's own packages comes first: kernels get the same configuration. The
user's cache is only read. Triton's cache, whose entries are named by content, is shared.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from aoti_debug.base.errors import TargetError, ToolchainError
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.base.machine.exhaustion import advice, raised_refusal, system_text
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.base.machine.processes import child_process, python_process
from aoti_debug.base.machine.processes.child_process import Child, changed_environment
from aoti_debug.base.machine.processes.python_process import PythonCommand
from aoti_debug.instrument.frontend.protocol import build_failure, messages
from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailureError, Ending, part_text
from aoti_debug.instrument.frontend.protocol.messages import Answer, Failure, Request

WITHOUT_LOWERING = "aoti_debug.instrument.frontend.worker.without_lowering"
LINE_WIDTH = 300
MORE_TIME = "more time: aoti-debug triage --build-timeout SECONDS, aoti_debug.build(…, timeout=SECONDS)"
_STACK_SECONDS, _POLL_SECONDS = 1.0, 0.05
_PTXAS = "TRITON_PTXAS_PATH"


def run_worker(module: str, request: Request, torch: Torch, timeout: float) -> Answer:
    """Runs `python -m <module> REQUEST.json` in a child process and returns its answer.

    Raises:
        AotiDebugError: it failed (messages.ERRORS), crashed or hung; the message names its log.
    """
    folder = Path(request.folder)
    log = folder / messages.LOG
    command = PythonCommand(module, arguments=(str(messages.write_request(request)),))
    with contextlib.suppress(FileNotFoundError):
        (folder / messages.ANSWER).unlink()
    with environment(folder, torch) as changes, log.open("ab") as output:
        with _started(command, {**inherited(torch), **changes}, output.fileno()) as child:
            try:
                status = child.wait(timeout)
            except subprocess.TimeoutExpired:
                _request_stack(child, folder / messages.STACK)
                error = ToolchainError(
                    f"lowering gave no answer for {timeout:g} s and was stopped{_keep_log(log)}",
                    hint=MORE_TIME,
                )
                what = f"no end within {timeout:g} s"
                raise _explained(error, folder, Ending.TIMEOUT, what, _stack(folder)) from None
        answer = messages.read_answer(folder)
        if answer is None:
            raise _death(status, folder, log)
    return answered(answer, folder, lambda lines: _keep_log(log, lines), lambda: _text(log))


def _death(status: int, folder: Path, log: Path) -> TargetError | ToolchainError:
    """The error of a worker that has left no answer."""
    refused = raised_refusal(_text(log)) if status > 0 else None
    if refused is not None:
        text = f"the process that lowered the model failed: {system_text(refused)}{_keep_log(log, 0)}"
        return TargetError(text, hint=advice(refused))
    ended = child_process.describe_exit(status)
    error = ToolchainError(
        f"the process that lowered the model ended without an answer ({ended}){_keep_log(log)}",
        hint="see whether torch._inductor.aoti_compile_and_package alone crashes as well",
    )
    return _explained(error, folder, Ending.DEATH, ended, _stack(folder))


def inherited(torch: Torch) -> dict[str, str]:
    """The environment variables of this process, without the assembler that torch has named in them for Triton.

    torch names its own one when it compiles the first kernel (torch/_inductor/runtime/compile_tasks.py). The worker's
    does the same; but sources of kernels hold a hash with the version of the assembler that was named before that, and
    what autotuning has found for them is looked up by it.
    """
    variables = dict(os.environ)
    chosen = torch.directory / "bin" / "ptxas"
    if variables.get(_PTXAS) == str(chosen) and _PTXAS.encode() not in _at_start():
        del variables[_PTXAS]
    return variables


def _at_start() -> frozenset[bytes]:
    """The names of the environment variables that this process was started with."""
    entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    return frozenset(entry.partition(b"=")[0] for entry in entries)


def _started(command: PythonCommand, variables: Mapping[str, str], output: int) -> Child:
    """Starts a worker.

    Raises:
        ToolchainError: it cannot be started.
    """
    after = "torch._inductor.compile_fx"
    try:
        return python_process.start(command, variables, stdout=output, stderr=subprocess.STDOUT, after=after)
    except OSError as error:
        raise ToolchainError(
            f"a process of {command.module} cannot be started: {error.strerror}",
            hint="aoti-debug doctor checks this machine",
        ) from error


def _request_stack(child: Child, file: Path) -> None:
    """Makes a worker that hangs write its Python stack to a file, if it can within a moment."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, messages.STACK_SIGNAL)
    size, end = -1, time.monotonic() + _STACK_SECONDS
    while time.monotonic() < end and (size <= 0 or size != file.stat().st_size):  # it is written in several pieces
        size = file.stat().st_size if file.exists() else 0
        time.sleep(_POLL_SECONDS)


def _stack(folder: Path) -> str:
    """The Python stack that a worker has written; "" if it has not."""
    file = folder / messages.STACK
    return _text(file) if file.exists() else ""


def answered(
    answer: Answer | Failure, folder: Path, keep_log: Callable[[int], str], output: Callable[[], str]
) -> Answer:
    """An answer that is no failure.

    Args:
        keep_log: makes the end of the message, with the given number of last lines.
        output: the text that the lowering has printed.

    Raises:
        AotiDebugError: it is one.
    """
    if isinstance(answer, Answer):
        return answer
    error = messages.error_of(answer, keep_log)
    if not isinstance(error, ToolchainError):
        raise error
    what = build_failure.innermost_exception(f"{answer.error}: {answer.message}")
    raise _explained(error, folder, Ending.EXCEPTION, what, output(), answer.hint) from None


def _explained(
    error: ToolchainError, folder: Path, ending: Ending, what: str, output: str, note: str = ""
) -> ToolchainError:
    """The error of a lowering, with the part of Inductor that was at work, which its hint names, too."""
    found = build_failure.explain(error, folder, ending, what, output, note)
    if not isinstance(found, BuildFailureError):
        return found
    position, how = found.failure.position, "it came out of" if ending is Ending.EXCEPTION else "at work was"
    line = found.failure.line(position)
    at = "" if line is None else f", {line.place}: {line.text.strip()}"
    return BuildFailureError(str(found), found.failure, hint=f"{how} the {part_text(position)}{at}; {found.hint}")


def _keep_log(log: Path, lines: int = messages.LOG_LINES) -> str:
    """Keeps the log; returns its path and last lines, as the end of an error message."""
    text = _text(log)
    last = text.strip().splitlines()[-lines:] if lines else []
    return "\n".join([f"\nlog: {cache.keep_log('lower', text)}", *(f"  | {line[:LINE_WIDTH]}" for line in last)])


def _text(file: Path) -> str:
    return file.read_text(errors="replace")


@contextlib.contextmanager
def environment(folder: Path, torch: Torch) -> Iterator[dict[str, str]]:
    """Yields the environment variables of a lowering whose cache is a new directory in `folder`.

    Its new results are kept, unless it ends by an exception: a compiler that was killed may have left half a file.
    """
    triton = cache.directory() / "triton"
    own = folder / "inductor"
    for path in (shared(torch), triton, own):
        path.mkdir(parents=True, exist_ok=True)
    autotuned = copy_autotuned(users_cache(), own)
    (folder / messages.AUTOTUNED).write_text(json_data.to_text(autotuned))
    link_new(shared(torch), own)
    yield {
        "TORCHINDUCTOR_CACHE_DIR": str(own),
        "TRITON_CACHE_DIR": str(triton),
        "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": "0",
    }
    link_new(own, shared(torch))


@contextlib.contextmanager
def apply(changes: Mapping[str, str]) -> Iterator[None]:
    """Changes this process's environment inside a `with`, and clears Inductor's in-memory caches."""
    from torch._inductor.utils import clear_caches

    with changed_environment(changes):
        clear_caches()
        try:
            yield
        finally:
            clear_caches()


def shared(torch: Torch) -> Path:
    """The folder of the results about this machine."""
    return cache.directory() / f"inductor-{torch.version}"


def users_cache() -> Path:
    """The cache that the user's own packages are compiled with (torch/_inductor/runtime/cache_dir_utils.py)."""
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    return Path(named) if named else Path(tempfile.gettempdir()) / f"torchinductor_{user}"


def copy_autotuned(source: Path, target: Path) -> list[str]:
    """Copies what autotuning has found, unless the folder is somebody else's: configurations, and choices of GEMMs.

    Returns:
        The files of configurations, below the folder.
    """
    if not source.is_dir() or source.stat().st_uid != os.getuid():
        return []
    configurations = [path for path in source.glob("??/*.best_config") if path.is_file()]
    choices = [path for path in source.glob("cache/*") if path.is_file()]
    for path in (*configurations, *choices):
        copied = target / path.relative_to(source)
        copied.parent.mkdir(parents=True, exist_ok=True)
        if not copied.exists():  # from an earlier lowering of the same model
            shutil.copyfile(path, copied)
    return sorted(str(path.relative_to(source)) for path in configurations)


def link_new(source: Path, target: Path) -> None:
    """Hard-links files that `target` lacks, or copies them.

    Only those in two-letter folders: lowered models have folders with longer names. Sources of kernels stay, so that a
    cache has those of one lowering.
    """
    for folder in source.iterdir():
        if len(folder.name) != 2 or not folder.is_dir():
            continue
        for path in folder.rglob("*"):
            linked = target / path.relative_to(source)
            if path.is_file() and path.suffix not in (".lock", ".tmp", ".part", ".py") and not linked.exists():
                linked.parent.mkdir(parents=True, exist_ok=True)
                atomic_write.link_or_copy(path, linked)
