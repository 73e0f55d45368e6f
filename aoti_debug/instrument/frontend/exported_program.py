"""Lowers an exported program to C++ sources with Inductor's `package_cpp_only` setting, in a child process.

Inductor may run kernels to tune them; if it crashes or hangs, only the child process is lost.

In that mode kernel binaries are named by kernel, so that two specialisations of one kernel share a file and the second
silently runs the first one's machine code. A default package names them by the hash of their content: then source and
binaries are taken from such a second lowering of the same program; flags and weights stay those of the first.
"""

from __future__ import annotations

import pickle
import shutil
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.errors import AotiDebugError, ArtifactError, ToolchainError, UsageError
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.base.machine.steps import OutOfTime, time_limit
from aoti_debug.instrument.frontend import sources, worker_process
from aoti_debug.instrument.frontend.lowered_model import LoweredModel, embedded_inputs
from aoti_debug.instrument.frontend.protocol import caller_settings, messages
from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailureError, Ending
from aoti_debug.instrument.frontend.protocol.caller_settings import UNSUPPORTED_CONFIGS, NotSendableError
from aoti_debug.instrument.frontend.protocol.messages import Answer, Request
from aoti_debug.instrument.frontend.sources import Sources
from aoti_debug.instrument.frontend.worker_process import answered, run_worker
from aoti_debug.instrument.wrapper.launches.kernels import shared_cubins
from aoti_debug.package.manifest import PackageOrigin
from aoti_debug.package.pt2 import archive as pt2_archive
from aoti_debug.package.pt2 import program_weights
from aoti_debug.package.pt2.archive import KERNEL_BINARIES, MODEL_FOLDER, Artifact

if TYPE_CHECKING:
    from torch.export import ExportedProgram


SAVE_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, pickle.PicklingError)
WORKER = "aoti_debug.instrument.frontend.worker.lower"
MODEL = "model"  # its name in the archive that Inductor writes


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
    """Lowers a program in memory with the settings of this process (`protocol/caller_settings.py`).

    It is lowered in a child process if the program can be saved and loaded there, and the settings passed on;
    otherwise in this one. In this one, too, where an exception ends the lowering of what was saved: torch saves no
    range of a symbol that no constraint names (torch/_export/serde/serialize.py), which a lowering may ask for.

    Raises:
        The errors of `lower`. In this process a crash of Inductor cannot be caught, and outside of its main thread
            there is no time limit.
    """
    import torch as torch_module

    folder = Path(request.folder)
    saved = folder / "program.pt2"
    try:
        caller = caller_settings.capture()
    except NotSendableError:
        return _lower_here(program, request, torch, timeout)
    try:
        torch_module.export.save(program, saved)
    except SAVE_ERRORS:
        saved.unlink(missing_ok=True)
        return _lower_here(program, request, torch, timeout)
    configs = {**caller.inductor, **request.configs}
    worker_request = replace(request, program=str(saved), caller=replace(caller, inductor={}), configs=configs)
    try:
        return lower(worker_request, torch, timeout=timeout)
    except ArtifactError:  # operators and Triton kernels that only this process has
        return _lower_again(program, request, torch, timeout)
    except BuildFailureError as error:
        if error.failure.ending is Ending.EXCEPTION:
            with suppress(AotiDebugError):
                return _lower_again(program, request, torch, timeout)
        raise


def _lower_again(program: ExportedProgram, request: Request, torch: Torch, timeout: float) -> LoweredModel:
    """Lowers a program in this process, without the files of the child process that has failed."""
    folder = Path(request.folder)
    shutil.rmtree(folder)
    folder.mkdir()
    return _lower_here(program, request, torch, timeout)


def _lower_here(program: ExportedProgram, request: Request, torch: Torch, timeout: float) -> LoweredModel:
    """Lowers a program in this process; in its main thread within the time limit, but for a call into C++."""
    try:
        with time_limit(timeout):
            return lower_in_process(program, request, torch)
    except OutOfTime:
        raise ToolchainError(
            f"lowering in this process gave no answer for {timeout:g} s and was stopped", hint=worker_process.MORE_TIME
        ) from None


def lower_in_process(program: ExportedProgram, request: Request, torch: Torch) -> LoweredModel:
    """Lowers a program in this process.

    Raises:
        The errors of `lower`. A crash of Inductor ends this process.
    """
    from aoti_debug.instrument.frontend.worker.lower import run

    def answer_to(worker_request: Request) -> Answer:
        return answered(run(worker_request, program), Path(request.folder), _no_log, lambda: "")

    with worker_process.environment(Path(request.folder), torch) as changes, worker_process.apply(changes):
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
        lowered_sources = use_hashed_binaries(lowered_sources, hashed_archive)
    by_reference = request.weights_by_reference
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
        weights_file=program_weights.describe(Path(request.program), answer.weight_names) if by_reference else None,
        weights=folder / messages.WEIGHTS if by_reference else None,
    )


def _check_configs(configs: Mapping[str, Any]) -> None:
    for key, value in UNSUPPORTED_CONFIGS.items():
        if key in configs and bool(configs[key]) == value:
            raise UsageError(
                f"a package with {key}={value} cannot be instrumented", hint=f"leave out --inductor-config {key}"
            )


def _unpack(archive: Artifact, directory: Path, folder: Path) -> None:
    """Unpacks the model's files; those of weights, which are not in the archive, lie beside it."""
    prefix = f"{archive.root}/{pt2_archive.MODEL_FOLDER}"
    directory.mkdir()
    with zipfile.ZipFile(archive.path) as file:
        for info in file.infolist():
            name = info.filename.removeprefix(prefix)
            if name == info.filename or "/" in name or not name:
                continue
            with file.open(info) as data, (directory / name).open("wb") as out:
                shutil.copyfileobj(data, out, 1 << 20)
    for path in [path for path in folder.iterdir() if messages.is_weights(path.name)]:
        path.rename(directory / path.name)


def _no_log(_: int) -> str:
    """The end of an error message without a log: this process has printed everything on its stderr."""
    return ""


def use_hashed_binaries(first: Sources, archive: Artifact) -> Sources:
    """Replaces the C++ source and the kernel binaries of `first` by those of a default package, also on disk.

    Args:
        archive: the default package.

    Raises:
        ToolchainError: the two lowerings laid the weights out differently.
    """
    members = _members(archive)
    wrapper = next(text for name, text in members.items() if name.endswith(".wrapper.cpp")).decode()
    kernels = next(text for name, text in members.items() if name.endswith(".kernel.cpp")).decode()
    if _weights_layout(wrapper) != _weights_layout(first.wrapper):
        raise ToolchainError(
            "two lowerings of the model laid its weights out differently",
            hint="give its Triton kernels different names, so that one lowering is enough",
        )
    for path in first.shipped:
        if path.suffix in KERNEL_BINARIES:
            path.unlink()
    for name, content in members.items():
        if name.endswith(KERNEL_BINARIES):
            (first.directory / name).write_bytes(content)
    (first.directory / f"{first.stem}.cpp").write_text(wrapper + kernels)
    return sources.read(first.directory, wrapper_opt=first.wrapper_opt)


def _members(archive: Artifact) -> dict[str, bytes]:
    """The model's text files and kernel binaries by name."""
    suffixes = (".cpp", *KERNEL_BINARIES)
    names = [name for name in archive.members if name.startswith(MODEL_FOLDER) and name.endswith(suffixes)]
    return {name.removeprefix(MODEL_FOLDER): archive.read(name) for name in names}


def _weights_layout(text: str) -> list[str]:
    return [line for line in text.splitlines() if "constants_info_[" in line]
