"""The request to the process that a package runs in, and the messages that it sends; each is one line of JSON.

A message is sent before the step that it announces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.processes.messages import ErrorData, Messages
from aoti_debug.runs.run.device_profiler import DeviceTimes
from aoti_debug.runs.rundir.run_json import CallPurpose, RunStage
from aoti_debug.runs.rundir.threads_json import ThreadPlan

WORKER = "aoti_debug.runs.run.worker"  # the module of the process that a package runs in
PRELOADED = ("torch", WORKER)  # by a fork server, for the processes of runs


@dataclass(frozen=True)
class InterposedLibraries:
    """The libraries that record the calls of a package without the source of its wrapper.

    Attributes:
        front: path of the library with the interposed symbols.
        recorder: path of the library that records the calls.
        model: the name of one of the package's models.
    """

    front: str
    recorder: str
    model: str


@dataclass(frozen=True)
class RunRequest:
    """The request to run a package.

    Attributes:
        package: path of the package.
        run: the run directory.
        device: the device that the model runs on, "cpu" or "cuda".
        calls: the number of calls of the model, or of replays, that were asked for.
        warm_up: the number of calls before them.
        inputs: a file of inputs; None for those embedded in the package.
        random_inputs: a seed: generate inputs that fit the model and save them in the run directory.
        interposed: None for an instrumented package.
        inspector: "FILE.py:FUNCTION", called on the tensors of launches; "" for none.
        tag: a pattern of tags of inspectors in the model; "" for every launch.
        ranks: "0,1": those on which it is called; "" for all.
        outputs: a folder for what the last call returns (saved_outputs.py); "" to drop it.
        weights: a file of tensors that take the place of weights, by their names; "" for none.
        memory: read the counters of memory around each call (memory_meter.py).
        device_times: what is measured on a GPU (device_profiler.py); None for nothing.
        threads: the threads that call the model (thread_host.py); None for the one of the process.
        thread_host: the library for that.
        imports, libraries: Python modules and shared libraries that register the model's operators.
    """

    package: str
    run: str
    device: str
    calls: int = 1
    warm_up: int = 0
    inputs: str | None = None
    random_inputs: int | None = None
    interposed: InterposedLibraries | None = None
    inspector: str = ""
    tag: str = ""
    ranks: str = ""
    outputs: str = ""
    weights: str = ""
    memory: bool = False
    device_times: DeviceTimes | None = None
    threads: ThreadPlan | None = None
    thread_host: str = ""
    imports: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True)
class StageReached:
    """The process is about to begin a stage."""

    stage: RunStage


@dataclass(frozen=True)
class TorchImported:
    """The process has imported torch."""

    version: str


@dataclass(frozen=True)
class SettingsApplied:
    """The settings of torch with which the package will run, as `torch_settings.capture` returns them."""

    settings: Mapping[str, Any]


@dataclass(frozen=True)
class CallsBegun:
    """The process of a profile is about to call the model some times."""

    purpose: CallPurpose
    count: int


@dataclass(frozen=True)
class CallsDone:
    """Every call of the model has returned."""

    seconds: float  # of all calls


@dataclass(frozen=True)
class Unloaded:
    """The model is unloaded and the process is about to end."""


@dataclass(frozen=True)
class ResultsUnsaved:
    """The calls ended well, and the system refused to write what is kept of them.

    Attributes:
        error: a TargetError.
    """

    error: ErrorData


@dataclass(frozen=True)
class RunFailed:
    """The process is about to end with an exception."""

    error: ErrorData


Message = (
    StageReached | TorchImported | SettingsApplied | CallsBegun | CallsDone | ResultsUnsaved | Unloaded | RunFailed
)

_MESSAGES: Messages[Message] = Messages(
    {
        "stage reached": StageReached,
        "torch imported": TorchImported,
        "settings applied": SettingsApplied,
        "calls begun": CallsBegun,
        "calls done": CallsDone,
        "unsaved": ResultsUnsaved,
        "unloaded": Unloaded,
        "failed": RunFailed,
    }
)
message_line = _MESSAGES.line
read_message = _MESSAGES.read
