"""The request to the process that a package runs in, and the messages that it sends; each is one line of JSON.

A message is sent before the step that it announces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from aoti_debug.machine import json_data
from aoti_debug.machine.error_data import ErrorData
from aoti_debug.machine.json_data import DamagedJsonError
from aoti_debug.rundir.run_json import Stage

_TAG = "message"


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
        calls: the number of calls of the model.
        inputs: a file of inputs; None for those embedded in the package.
        random_inputs: a seed: generate inputs that fit the model and save them in the run directory.
        interposed: None for an instrumented package.
        imports, libraries: Python modules and shared libraries that register the model's operators.
    """

    package: str
    run: str
    device: str
    calls: int = 1
    inputs: str | None = None
    random_inputs: int | None = None
    interposed: InterposedLibraries | None = None
    imports: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True)
class StageReached:
    """The process is about to begin a stage."""

    stage: Stage


@dataclass(frozen=True)
class TorchImported:
    """The process has imported torch."""

    version: str


@dataclass(frozen=True)
class CallsDone:
    """Every call of the model has returned."""

    seconds: float  # of all calls


@dataclass(frozen=True)
class Unloaded:
    """The model is unloaded and the process is about to end."""


@dataclass(frozen=True)
class Failed:
    """The process is about to end with an exception."""

    error: ErrorData


Message = StageReached | TorchImported | CallsDone | Unloaded | Failed

_MESSAGES: Mapping[str, type[Message]] = {
    "stage reached": StageReached,
    "torch imported": TorchImported,
    "calls done": CallsDone,
    "unloaded": Unloaded,
    "failed": Failed,
}
_TAGS = {cls: tag for tag, cls in _MESSAGES.items()}


def message_line(message: Message) -> str:
    """A message as one line, without its end."""
    return json.dumps({_TAG: _TAGS[type(message)], **asdict(message)})


def read_message(line: bytes) -> Message:
    """Parses one line.

    Raises:
        DamagedJsonError: it is none of the messages.
    """
    data = json_data.parse_object(line)
    tag = data.get(_TAG)
    cls = _MESSAGES.get(tag) if isinstance(tag, str) else None
    if cls is None:
        raise DamagedJsonError(f"{_TAG} is {tag!r}, not one of {', '.join(_MESSAGES)}")
    return json_data.from_data(cls, data)
