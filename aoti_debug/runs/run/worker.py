"""The process that a package runs in: `python -m aoti_debug.runs.run.worker PIPE PARENT REQUEST`.

PIPE is the descriptor of the pipe for its messages, PARENT the id of the parent process, with which this one ends, and
REQUEST a JSON object; protocol.py describes messages and request.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from aoti_debug.base.abi import Variable
from aoti_debug.base.errors import ArtifactError, TargetError, UsageError
from aoti_debug.base.machine import current_rank, torch_settings, user_code
from aoti_debug.base.machine.exhaustion import advice, system_text
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.processes import tied_process
from aoti_debug.base.machine.processes.messages import ErrorData
from aoti_debug.base.native import crash_stacks
from aoti_debug.package.inputs import input_files, random_inputs
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.runs.run import device_profiler, saved_outputs, thread_host
from aoti_debug.runs.run.device_profiler import DeviceTimes
from aoti_debug.runs.run.inspector import Inspector, user_function
from aoti_debug.runs.run.load_model import Interposed, load_recorded
from aoti_debug.runs.run.memory_meter import WARM_UP, LaunchHeapMeter, MemoryMeter
from aoti_debug.runs.run.protocol import (
    CallsBegun,
    CallsDone,
    InterposedLibraries,
    Message,
    ResultsUnsaved,
    RunFailed,
    RunRequest,
    SettingsApplied,
    StageReached,
    TorchImported,
    Unloaded,
    message_line,
)
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_json import CallPurpose, RunStage
from aoti_debug.runs.rundir.threads_json import ThreadPlan


def main() -> int:
    """Runs the package of the request; 1 if it raised an exception, else 0."""
    descriptor, parent, text = sys.argv[1:]
    tied_process.end_with(int(parent))
    request = json_data.parse(RunRequest, text)
    crash_stacks.enable_python(Path(request.run) / crash_stacks.PYTHON, crash_stacks.REQUEST)
    with os.fdopen(int(descriptor), "w", buffering=1) as pipe:
        try:
            _run(request, pipe)
        except Exception as error:  # noqa: BLE001 - every exception of the model is reported to the parent
            _send(pipe, RunFailed(ErrorData.from_exception(error)))
            return 1
    return 0


def _import_torch() -> None:
    """Imports torch, unless a server has before the fork; collections, also at exit, need not visit its objects."""
    if "torch" in sys.modules:
        return
    gc.disable()
    importlib.import_module("torch")
    gc.freeze()
    gc.enable()


def _run(request: RunRequest, pipe: TextIO) -> None:
    _send(pipe, StageReached(RunStage.IMPORT))
    _import_torch()
    import torch

    _send(pipe, TorchImported(str(torch.__version__)))
    threads = torch.get_num_threads()
    user_code.load(request.imports, request.libraries)
    _send(pipe, SettingsApplied(_settings(threads)))
    if request.threads is not None:
        _run_threads(request, request.threads, pipe)
        return
    is_profiled = request.device_times is not None and _can_profile(request.device_times)
    is_captured = request.device_times is not None and request.device_times.replays
    is_inspected = bool(request.inspector) and current_rank.selected(current_rank.parse(request.ranks))
    function = user_function(request.inspector).load() if is_inspected else None
    inspector: Inspector | None = None
    heap = LaunchHeapMeter(torch, request.device, request.calls)
    model: Any
    if request.interposed is not None:
        _send(pipe, StageReached(RunStage.LOAD))
        path, data = _raw_inputs(request)
        _select_gpu(data)
        model = _interposed(request.interposed, request, single_threaded=is_captured)
        _send(pipe, StageReached(RunStage.INPUTS))
        inputs = input_files.arrange(path, data, model.signature)
    else:
        _send(pipe, StageReached(RunStage.INPUTS))
        package = archive.inspect(request.package)
        inputs = _inputs(request, package)
        _send(pipe, StageReached(RunStage.LOAD))
        _select_gpu((inputs.args, dict(inputs.kwargs)))
        if function is None and heap.is_possible and request.memory and request.calls > WARM_UP + 2:
            function = heap  # of no use in fewer calls
        if function is not None:
            inspector = Inspector(function, package.manifest(), request.inspector or "of the heap", request.tag)
            os.environ[Variable.INSPECT.value] = inspector.variable
        model = _load(package, single_threaded=is_captured)
        if request.weights:
            model.replace_weights(torch.load(request.weights, weights_only=True, map_location=request.device))
    _send(pipe, StageReached(RunStage.CALL))
    meter = MemoryMeter(torch, request.device, Path(request.run), request.calls, heap) if request.memory else None
    began = time.monotonic()
    result = None
    with torch.no_grad():
        if request.device_times is not None and is_profiled:
            _measure(model, inputs, inspector, request, functools.partial(_announce, pipe))
        elif request.warm_up:
            _announce(pipe, CallPurpose.WARM_UP, request.warm_up)
            _announce(pipe, CallPurpose.ASKED, request.calls)
        for _ in range(0 if is_profiled else request.warm_up + request.calls):
            if meter is not None:
                result = None  # what the call before returned does not count
                meter.begin()
            result = _call(model, inputs, inspector)
            if meter is not None:
                meter.end()
    if request.device == "cuda":
        _send(pipe, StageReached(RunStage.SYNCHRONISE))
        torch.cuda.synchronize()
    if meter is not None:
        with _saving("the counters of memory", pipe):
            meter.write()
    _send(pipe, CallsDone(time.monotonic() - began))
    if request.outputs:
        with _saving("what the model returned", pipe):
            saved_outputs.save(result, Path(request.outputs), (inputs.args, dict(inputs.kwargs)))
    _send(pipe, StageReached(RunStage.UNLOAD))
    del model, result
    gc.collect()
    _send(pipe, Unloaded())


@contextlib.contextmanager
def _saving(what: str, pipe: TextIO) -> Iterator[None]:
    """Has a refusal of the system inside the `with` be no exception of the model: the parent is told."""
    try:
        yield
    except OSError as error:
        refused = TargetError(f"{what} cannot be saved: {system_text(error)}", hint=advice(error))
        _send(pipe, ResultsUnsaved(ErrorData.from_exception(refused)))


def _run_threads(request: RunRequest, plan: ThreadPlan, pipe: TextIO) -> None:
    """Calls the model of an instrumented package from several threads."""
    _send(pipe, StageReached(RunStage.INPUTS))
    package = archive.inspect(request.package)
    inputs = _inputs(request, package)
    _send(pipe, StageReached(RunStage.LOAD))
    _select_gpu((inputs.args, dict(inputs.kwargs)))
    with thread_host.loaders(Path(request.thread_host), plan.runners) as made:
        model = load_recorded(package, package.manifest())
    _send(pipe, StageReached(RunStage.CALL))
    began = time.monotonic()
    tensors = model.tensors(inputs.args, inputs.kwargs)
    thread_host.call_from_threads(made[-1], tensors, plan, request.calls, Path(request.run))
    _send(pipe, CallsDone(time.monotonic() - began))
    _send(pipe, StageReached(RunStage.UNLOAD))
    made[-1].close()
    _send(pipe, Unloaded())


def _settings(threads: int) -> dict[str, torch_settings.Value]:
    """The settings of torch with which the package runs; without the number of threads, if it is that of a new process.

    Args:
        threads: that number.
    """
    found = torch_settings.capture()
    if found.get(torch_settings.THREADS) == threads:
        del found[torch_settings.THREADS]
    return found


def _announce(pipe: TextIO, purpose: CallPurpose, count: int) -> None:
    _send(pipe, CallsBegun(purpose, count))


def _measure(
    model: Any,
    inputs: Inputs,
    inspector: Inspector | None,
    request: RunRequest,
    announce: Callable[[CallPurpose, int], None],
) -> None:
    """Measures calls, or replays, on a GPU; nothing holds the model afterwards.

    Raises:
        MeasuringError: they cannot be measured.
    """
    assert request.device_times is not None
    call = functools.partial(_call, model, inputs, inspector)
    device_profiler.measure(call, request.device_times, request.calls, Path(request.run), announce)


def _call(model: Any, inputs: Inputs, inspector: Inspector | None) -> Any:
    """Calls the model; returns what it returns.

    Raises:
        InspectorError: the inspector raised an exception, or has changed a tensor.
    """
    try:
        return model(*inputs.args, **inputs.kwargs)
    finally:
        if inspector is not None:
            inspector.check()


def _can_profile(chosen: DeviceTimes) -> bool:
    """True if the profiler of the GPU can be used; if not, the host waits for the GPU at every launch.

    Raises:
        UsageError: replays are to be measured, which are no launches on the host.
    """
    if device_profiler.is_available():
        return True
    if chosen.replays:
        raise UsageError(
            "this build of torch does not record the work of a GPU", hint="without --cuda-graph its calls are measured"
        )
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # read by CUDA's driver when it is first used
    return False


def _interposed(libraries: InterposedLibraries, request: RunRequest, *, single_threaded: bool) -> Interposed:
    return Interposed(
        front=libraries.front,
        recorder=libraries.recorder,
        package=request.package,
        model=libraries.model,
        device=request.device,
        single_threaded=single_threaded,
    )


def _select_gpu(inputs: Any) -> None:
    """Makes the GPU of the inputs the current one, so that the model is loaded and synchronised there."""
    import torch

    index = input_files.device_index(inputs)
    if index >= 0:
        torch.cuda.set_device(index)


def _load(package: Artifact, *, single_threaded: bool) -> Any:
    """Loads the model of an instrumented package."""
    return load_recorded(package, package.manifest(), single_threaded=single_threaded)


def _inputs(request: RunRequest, package: Artifact) -> Inputs:
    if request.random_inputs is None:
        return input_files.given_or_embedded(package, request.inputs)
    inputs = random_inputs.make(input_files.read_signature(package), package.manifest(), request.random_inputs)
    input_files.write(inputs, Path(request.run) / run_directory.RANDOM_INPUTS)
    return inputs


def _raw_inputs(request: RunRequest) -> tuple[Path, Any]:
    """The inputs file and its content, not yet checked, for a package without inputs and without signature."""
    if request.inputs is None:
        raise ArtifactError(
            f"{request.package} has no inputs in it, and without its source the model's signature is not known",
            hint="pass inputs with --inputs FILE.pt",
        )
    path = Path(request.inputs)
    return path, input_files.load(path)


def _send(pipe: TextIO, message: Message) -> None:
    pipe.write(message_line(message) + "\n")


if __name__ == "__main__":
    sys.exit(main())
