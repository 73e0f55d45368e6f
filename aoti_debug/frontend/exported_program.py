"""Turns an exported program into Sources with Inductor's official `package_cpp_only` switch, in a child process.

A crash or a hang of Inductor, which may run kernels to tune them, ends the child and not the tool.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug import wrapper
from aoti_debug.errors import ArtifactError, ToolchainError, UsageError
from aoti_debug.frontend import hashed_kernels, inductor_cache, sources
from aoti_debug.frontend.lowered import Lowered, inputs_in
from aoti_debug.frontend.worker import protocol
from aoti_debug.frontend.worker.protocol import Answer, Failure, Request
from aoti_debug.machine import cache, process
from aoti_debug.machine.compiler import Torch
from aoti_debug.machine.process import Child
from aoti_debug.manifest import PackageOrigin
from aoti_debug.pt2 import archive as pt2_archive
from aoti_debug.pt2.archive import Artifact

if TYPE_CHECKING:
    from torch.export import ExportedProgram

LINE_WIDTH = 300
UNSAVABLE = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, pickle.PicklingError)
CHILD = "aoti_debug.frontend.worker.lower"
MODEL = "model"  # its name in what Inductor writes
REFUSED = {
    "aot_inductor.use_minimal_arrayref_interface": True,
    "aot_inductor.allow_stack_allocation": True,
    "aot_inductor.compile_standalone": True,
    "aot_inductor.emit_multi_arch_kernel": True,
    "aot_inductor.dynamic_linkage": False,
}


def lower(request: Request, torch: Torch, *, timeout: float) -> Lowered:
    """Lowers the program that the request names, in a child process.

    Args:
        timeout: seconds until the child counts as hung.

    Raises:
        UsageError: a module, library or setting that the request names does not exist.
        ArtifactError: the program or the inputs cannot be loaded.
        ToolchainError: the lowering failed, crashed or hung; the message names its log.
    """
    return _lower(request, lambda asked: ask(CHILD, asked, torch, timeout))


def lower_program(program: ExportedProgram, request: Request, torch: Torch, *, timeout: float) -> Lowered:
    """Lowers a program in memory: in a child process if it can be saved and loaded there, otherwise in this one.

    Raises:
        as `lower`. In this process a crash of Inductor cannot be caught.
    """
    import torch as torch_module

    folder = Path(request.folder)
    saved = folder / "program.pt2"
    try:
        torch_module.export.save(program, saved)
    except UNSAVABLE:
        saved.unlink(missing_ok=True)
        return lower_in_process(program, request, torch)
    try:
        return lower(replace(request, program=str(saved)), torch, timeout=timeout)
    except ArtifactError:  # operators that only this process knows
        shutil.rmtree(folder)
        folder.mkdir()
        return lower_in_process(program, request, torch)


def lower_in_process(program: ExportedProgram, request: Request, torch: Torch) -> Lowered:
    """Lowers a program in this process.

    Raises:
        as `lower`. A crash of Inductor takes this process with it.
    """
    from aoti_debug.frontend.worker.lower import run

    with inductor_cache.environment(Path(request.folder), torch) as changes, inductor_cache.applied(changes):
        return _lower(request, lambda asked: _checked(run(asked, program), _no_log))


def _lower(request: Request, answer_to: Callable[[Request], Answer]) -> Lowered:
    """
    Args:
        answer_to: does what a request asks for, in whichever process; called again where the kernels' binaries have to
            be named by their content.
    """
    _refuse(request.configs)
    answer = answer_to(request)
    folder = Path(request.folder)
    archive = pt2_archive.inspect(folder / protocol.ARCHIVE)
    directory = folder / "sources"
    _unpack(archive, directory, folder)
    found, configs = sources.read(directory, wrapper_opt=answer.wrapper_opt), answer.triton_configs
    if wrapper.shared_cubins(found.wrapper):
        configs = answer_to(replace(request, hashed_kernels=True)).triton_configs
        found = hashed_kernels.adopt(found, pt2_archive.inspect(folder / protocol.HASHED_ARCHIVE))
    return Lowered(
        sources=found,
        archive=archive,
        inputs=inputs_in(folder, answer),
        signature_file=folder / protocol.SIGNATURE,
        log=folder / protocol.LOG,
        answer=answer,
        triton_configs=configs,
        model=MODEL,
        source=PackageOrigin.EXPORTED,
    )


def _refuse(configs: Mapping[str, Any]) -> None:
    for key, value in REFUSED.items():
        if key in configs and bool(configs[key]) == value:
            raise UsageError(
                f"a package with {key}={value} cannot be instrumented", hint=f"leave out --inductor-config {key}"
            )


def ask(module: str, request: Request, torch: Torch, timeout: float) -> Answer:
    """What the process `python -m <module> REQUEST.json` answers.

    Raises:
        as `lower`.
    """
    folder = Path(request.folder)
    log = folder / protocol.LOG
    command = [sys.executable, "-m", module, str(protocol.write_request(request))]
    with contextlib.suppress(FileNotFoundError):
        (folder / protocol.ANSWER).unlink()
    with inductor_cache.environment(folder, torch) as environment, log.open("ab") as output:
        variables = {**os.environ, **environment}
        with Child(command, stdout=output, stderr=subprocess.STDOUT, environment=variables) as child:
            try:
                status = child.wait(timeout)
            except subprocess.TimeoutExpired:
                raise ToolchainError(
                    f"lowering gave no answer for {timeout:g} s and was stopped{_log(log)}",
                    hint="a model that takes long to tune may need more time: aoti_debug.build(…, timeout=SECONDS)",
                ) from None
    answer = protocol.read_answer(folder)
    if answer is None:
        raise ToolchainError(
            f"the process that lowered the model ended without an answer ({process.ending(status)}){_log(log)}",
            hint="see whether torch._inductor.aoti_compile_and_package alone crashes as well",
        )
    return _checked(answer, lambda lines: _log(log, lines))


def _checked(answer: Answer | Failure, log: Callable[[int], str]) -> Answer:
    if isinstance(answer, Failure):
        raise protocol.error_of(answer, log)
    return answer


def _unpack(archive: Artifact, directory: Path, folder: Path) -> None:
    """Unpacks the model's files. Large ones that still lie in the lowering's own cache are linked, not copied."""
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
    # Above 2 GB the archive holds the weights apart and leaves out the object that tells their size.
    if not any(directory.glob("*.weights.o")):
        for name, path in large.items():
            path.rename(directory / name)


def _log(log: Path, lines: int = protocol.LOG_LINES) -> str:
    """Keeps the log; its path and last lines, to end a message."""
    text = log.read_text(errors="replace")
    last = text.strip().splitlines()[-lines:] if lines else []
    return "\n".join([f"\nlog: {cache.keep_log('lower', text)}", *(f"  | {line[:LINE_WIDTH]}" for line in last)])


def _no_log(_: int) -> str:
    """What was lowered in this process has said everything on this process's stderr."""
    return ""
