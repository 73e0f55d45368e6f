"""Lowers an exported program to C++ sources with Inductor's `package_cpp_only` setting, in a child process.

Inductor may run kernels to tune them; if it crashes or hangs, only the child process is lost.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import subprocess
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.errors import ArtifactError, ToolchainError, UsageError
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.base.machine.fork_server import python_process
from aoti_debug.base.machine.fork_server.python_process import PythonCommand
from aoti_debug.base.machine.processes import child_process
from aoti_debug.base.machine.processes.child_process import Child
from aoti_debug.instrument.frontend import hashed_kernels, inductor_cache, sources
from aoti_debug.instrument.frontend.lowered_model import LoweredModel, embedded_inputs
from aoti_debug.instrument.frontend.protocol import build_failure, messages
from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailureError, Ending
from aoti_debug.instrument.frontend.protocol.messages import Answer, Failure, Request
from aoti_debug.instrument.frontend.protocol.part_text import part_text
from aoti_debug.instrument.wrapper.callees.kernels import shared_cubins
from aoti_debug.package.manifest import PackageOrigin
from aoti_debug.package.pt2 import archive as pt2_archive
from aoti_debug.package.pt2.archive import Artifact

if TYPE_CHECKING:
    from torch.export import ExportedProgram

LINE_WIDTH = 300
_STACK_SECONDS, _POLL_SECONDS = 1.0, 0.05
SAVE_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, pickle.PicklingError)
WORKER = "aoti_debug.instrument.frontend.worker.lower"
MODEL = "model"  # its name in the archive that Inductor writes
UNSUPPORTED_CONFIGS = {
    "aot_inductor.use_minimal_arrayref_interface": True,
    "aot_inductor.allow_stack_allocation": True,
    "aot_inductor.compile_standalone": True,
    "aot_inductor.emit_multi_arch_kernel": True,
    "aot_inductor.dynamic_linkage": False,
}


def lower(request: Request, torch: Torch, *, timeout: float) -> LoweredModel:
    """Lowers the program that the request names, in a child process.

    Args:
        timeout: seconds until the child counts as hung.

    Raises:
        UsageError: a module, library or setting that the request names does not exist.
        ArtifactError: the program or the inputs cannot be loaded.
        ToolchainError: the lowering failed, crashed or hung; the message names its log.
    """
    return _lower(request, lambda worker_request: run_worker(WORKER, worker_request, torch, timeout))


def lower_program(program: ExportedProgram, request: Request, torch: Torch, *, timeout: float) -> LoweredModel:
    """Lowers a program in memory: in a child process if it can be saved and loaded there, otherwise in this one.

    Raises:
        The errors of `lower`. In this process a crash of Inductor cannot be caught.
    """
    import torch as torch_module

    folder = Path(request.folder)
    saved = folder / "program.pt2"
    try:
        torch_module.export.save(program, saved)
    except SAVE_ERRORS:
        saved.unlink(missing_ok=True)
        return lower_in_process(program, request, torch)
    try:
        return lower(replace(request, program=str(saved)), torch, timeout=timeout)
    except ArtifactError:  # operators that are registered in this process only
        shutil.rmtree(folder)
        folder.mkdir()
        return lower_in_process(program, request, torch)


def lower_in_process(program: ExportedProgram, request: Request, torch: Torch) -> LoweredModel:
    """Lowers a program in this process.

    Raises:
        The errors of `lower`. A crash of Inductor ends this process.
    """
    from aoti_debug.instrument.frontend.worker.lower import run

    def answer_to(worker_request: Request) -> Answer:
        return _answered(run(worker_request, program), Path(request.folder), _no_log, lambda: "")

    with inductor_cache.environment(Path(request.folder), torch) as changes, inductor_cache.apply(changes):
        return _lower(request, answer_to)


def _lower(request: Request, answer_to: Callable[[Request], Answer]) -> LoweredModel:
    """Lowers a program once, and once more if kernels of the same name need binaries of their own.

    Args:
        answer_to: processes a request, in a child process or in this one.
    """
    _check_configs(request.configs)
    answer = answer_to(request)
    folder = Path(request.folder)
    archive = pt2_archive.inspect(folder / messages.ARCHIVE)
    directory = folder / "sources"
    _unpack(archive, directory, folder)
    lowered_sources, configs = sources.read(directory, wrapper_opt=answer.wrapper_opt), answer.triton_configs
    if shared_cubins(lowered_sources.wrapper):
        configs = answer_to(replace(request, hashed_kernels=True)).triton_configs
        hashed_archive = pt2_archive.inspect(folder / messages.HASHED_ARCHIVE)
        lowered_sources = hashed_kernels.use_hashed_binaries(lowered_sources, hashed_archive)
    return LoweredModel(
        sources=lowered_sources,
        archive=archive,
        inputs=embedded_inputs(folder, answer),
        signature_file=folder / messages.SIGNATURE,
        log=folder / messages.LOG,
        answer=answer,
        triton_configs=configs,
        model=MODEL,
        source=PackageOrigin.EXPORTED,
        reference_file=folder / messages.REFERENCE,
    )


def _check_configs(configs: Mapping[str, Any]) -> None:
    for key, value in UNSUPPORTED_CONFIGS.items():
        if key in configs and bool(configs[key]) == value:
            raise UsageError(
                f"a package with {key}={value} cannot be instrumented", hint=f"leave out --inductor-config {key}"
            )


def run_worker(module: str, request: Request, torch: Torch, timeout: float) -> Answer:
    """Runs `python -m <module> REQUEST.json` in a child process and returns its answer.

    Raises:
        The errors of `lower`.
    """
    folder = Path(request.folder)
    log = folder / messages.LOG
    command = PythonCommand(module, arguments=(str(messages.write_request(request)),))
    with contextlib.suppress(FileNotFoundError):
        (folder / messages.ANSWER).unlink()
    with inductor_cache.environment(folder, torch) as environment, log.open("ab") as output:
        variables = {**os.environ, **environment}
        with python_process.start(
            command, variables, stdout=output.fileno(), stderr=subprocess.STDOUT, after="torch._inductor.compile_fx"
        ) as child:
            try:
                status = child.wait(timeout)
            except subprocess.TimeoutExpired:
                _request_stack(child, folder / messages.STACK)
                error = ToolchainError(
                    f"lowering gave no answer for {timeout:g} s and was stopped{_keep_log(log)}",
                    hint="more time: aoti-debug triage --build-timeout SECONDS, aoti_debug.build(…, timeout=SECONDS)",
                )
                what = f"no end within {timeout:g} s"
                raise _explained(error, folder, Ending.TIMEOUT, what, _stack(folder)) from None
    answer = messages.read_answer(folder)
    if answer is None:
        ended = child_process.describe_exit(status)
        error = ToolchainError(
            f"the process that lowered the model ended without an answer ({ended}){_keep_log(log)}",
            hint="see whether torch._inductor.aoti_compile_and_package alone crashes as well",
        )
        raise _explained(error, folder, Ending.DEATH, ended, _stack(folder))
    return _answered(answer, folder, lambda lines: _keep_log(log, lines), lambda: _text(log))


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


def _answered(
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


def _unpack(archive: Artifact, directory: Path, folder: Path) -> None:
    """Unpacks the model's files. Large weights that are still in the cache of the lowering are moved, not copied."""
    prefix = f"{archive.root}/{pt2_archive.MODEL_FOLDER}"
    large = {path.name: path for path in folder.rglob("*.o") if path.name.endswith(".weights.o")}
    directory.mkdir()
    with zipfile.ZipFile(archive.path) as file:
        for info in file.infolist():
            name = info.filename.removeprefix(prefix)
            if name == info.filename or "/" in name or not name:
                continue
            if name in large and large[name].stat().st_size == info.file_size:
                large.pop(name).rename(directory / name)
                continue
            with file.open(info) as data, (directory / name).open("wb") as out:
                shutil.copyfileobj(data, out, 1 << 20)
    # Above 2 GB the archive holds the weights in a separate file and lacks the object with their size.
    if not any(directory.glob("*.weights.o")):
        for name, path in large.items():
            path.rename(directory / name)


def _keep_log(log: Path, lines: int = messages.LOG_LINES) -> str:
    """Keeps the log; returns its path and last lines, as the end of an error message."""
    text = _text(log)
    last = text.strip().splitlines()[-lines:] if lines else []
    return "\n".join([f"\nlog: {cache.keep_log('lower', text)}", *(f"  | {line[:LINE_WIDTH]}" for line in last)])


def _text(file: Path) -> str:
    return file.read_text(errors="replace")


def _no_log(_: int) -> str:
    """The end of an error message without a log: this process has printed everything on its stderr."""
    return ""
