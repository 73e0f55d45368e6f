"""Reads and writes run.json: the package and options of a run, and how it ended."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from aoti_debug.base.abi import Variable
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.base.machine.files.json_data import DamagedJsonError

NAME = "run.json"
_OWN_PACKAGES = frozenset({"package.pt2", "new.pt2", "old.pt2", "a.pt2", "b.pt2"})
FORMAT = 1
EMBEDDED = "embedded"  # the host of a run whose package another program loaded

_CUT_SHORT = "the recording stopped before the end"  # as the runtime says it: runtime_shims/run/run.cpp
_HEX_BYTE = re.compile(r"[0-9a-fA-F]{2}\Z")


class ExitKind(str, Enum):
    """The kind of end of a run."""

    RUNNING = "running"
    CLEAN = "clean"
    FAULT = "fault"  # an exception, a device error, SIGSEGV, SIGABRT, …
    ABORTED = "aborted"  # killed from outside, or it disappeared
    TIMEOUT = "timeout"
    STOPPED = "stopped"  # by a watchpoint or an inspector, or before a launch
    ERROR = "error"  # loading the model failed

    @property
    def is_failure(self) -> bool:
        """True if the run ended, and neither cleanly nor because it was asked to stop."""
        return self not in (ExitKind.RUNNING, ExitKind.CLEAN, ExitKind.STOPPED)

    @property
    def text(self) -> str:
        """The end of the process in words, which say nothing about what it computed."""
        return "ended well" if self is ExitKind.CLEAN else self.value


class RunStage(str, Enum):
    """The stages of the process of `aoti-debug run`, in order."""

    IMPORT = "import"
    INPUTS = "inputs"
    LOAD = "load"
    CALL = "call"
    SYNCHRONISE = "synchronise"  # waiting for the device after the last call
    UNLOAD = "unload"


@dataclass(frozen=True)
class Exit:
    """The end of a run's process."""

    kind: ExitKind
    detail: str = ""  # for people: "SIGSEGV", "RuntimeError: …"
    stage: RunStage | None = None
    signal: str = ""  # "SIGSEGV"; "" if no signal ended it
    exception: str = ""  # the Python type's name
    code: int | None = None  # the device error's code, if the exception has one
    seconds: float | None = None  # of the calls
    unix_time: float | None = None  # when it ended, in seconds, by the clock of its machine; None: nobody saw it

    @property
    def is_cut_short(self) -> bool:
        """True if the process went on after its recording had stopped: a later fault is not recorded."""
        return self.detail == _CUT_SHORT


@dataclass(frozen=True)
class RankInfo:
    """The place of a process among the ranks of a distributed program.

    Attributes:
        number: its rank, from 0.
        world_size: the number of ranks.
        machine: the name of its machine.
    """

    number: int
    world_size: int
    machine: str


@dataclass(frozen=True)
class LoadedFrom:
    """The place of a package, as another program showed it when it loaded the package's library.

    Attributes:
        library: the path of the library, mostly one that torch had unpacked; "" if it is not known.
        packages: the .pt2 files that the program had open then, or that its command line names.
    """

    library: str
    packages: tuple[str, ...] = ()


class CallPurpose(str, Enum):
    """The purpose of calls of the model, of a profile."""

    ASKED = "as asked for"
    WARM_UP = "to warm up"
    SIZED = "to see how much the profiler records"
    UNPROFILED = "without the profiler"
    CAPTURED = "captured in a CUDA graph"
    ATTRIBUTED = "to tell the launch of each kernel"


@dataclass(frozen=True)
class ToolCalls:
    """Calls that follow one another and that nobody has asked for.

    Attributes:
        first: the number of the first one in the run.
        calls: how many they are; if the run has failed, some may not have been made.
    """

    purpose: CallPurpose
    first: int
    calls: int

    @property
    def numbers(self) -> range:
        """Their numbers in the run."""
        return range(self.first, self.first + self.calls)


@dataclass(frozen=True)
class RunInfo:
    """The content of run.json."""

    tool_version: str | None  # None if the package does not record it; the same for torch_version
    torch_version: str | None
    pid: int
    started: str  # ISO 8601
    level: int
    filters: tuple[str, ...]
    phase: str  # "before", "after", "both", "" for the level's own choice
    device: str  # "cpu" or "cuda"
    command: tuple[str, ...]
    host: str  # "aoti-debug run", or "embedded" if another program loaded the package
    exit: Exit = Exit(ExitKind.RUNNING)
    calls: int = 1  # that were asked for; or replays of a CUDA graph
    tool_calls: tuple[ToolCalls, ...] = ()  # that aoti-debug has made besides
    imports: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    module_filters: tuple[str, ...] = ()
    line_filters: tuple[str, ...] = ()
    guards: bool = False  # zones of known bytes around buffers
    torch_settings: Mapping[str, Any] | None = None  # as `torch_settings.capture` returns them; None: not known
    poison: int | None = None  # the byte that buffers were filled with
    rank: RankInfo | None = None  # None: it is not one of many
    loaded_from: LoadedFrom | None = None  # by another program; None: not known, or no other program
    built_from: str = ""  # the file name of the model that a command has built the package from; "": it was given
    timings: Mapping[str, float] = field(default_factory=dict)  # seconds by phase, in order; {}: not known
    format: int = FORMAT

    @property
    def model(self) -> str:
        """The file name of the model, as far as it is known; "" if it is not."""
        return self.built_from or model_of(self.command)

    @property
    def all_calls(self) -> int:
        """The calls that were asked for, and those that aoti-debug makes."""
        return self.calls + sum(batch.calls for batch in self.tool_calls)


def model_of(command: Sequence[str]) -> str:
    """The file name of the model, or of the script, that a command line names first; "" if it names none.

    The packages that commands build for themselves have names that say nothing.
    """
    name = next((Path(word).name for word in command if word.endswith((".pt2", ".py"))), "")
    return "" if name in _OWN_PACKAGES else name


def to_json(info: RunInfo) -> str:
    """The text of run.json."""
    return json_data.to_text({"format": info.format, **json_data.to_data(info), "phase": info.phase or None}) + "\n"


def write(info: RunInfo, run: Path) -> None:
    """Replaces run.json atomically."""
    atomic_write.write(run / NAME, to_json(info))


def read(run: Path) -> RunInfo:
    """Reads run.json of a run directory.

    Raises:
        RunDirError: there is none, it is damaged, or it has another format version.
    """
    try:
        return json_data.read_file(run, NAME, _read, format_=FORMAT, hint="run the package again")
    except FileNotFoundError as error:
        raise RunDirError(
            f"{run} is not a run directory: {NAME}: {error.strerror}", hint="aoti-debug run PACKAGE.pt2 makes one"
        ) from error


def poison_in_force(poison: int | None, *, guards: bool) -> int | None:
    """The byte that guarded buffers are filled with; None without guards.

    It is the requested one, else that of the environment, else the default.
    """
    if not guards and os.environ.get(Variable.GUARDS.value) != "1":
        return None
    if poison is not None:
        return poison
    variable = os.environ.get(Variable.POISON.value, "")
    return int(variable, 16) if _HEX_BYTE.match(variable) else 0xFF


def started_at(info: RunInfo) -> datetime:
    """The start of the run, in local time."""
    return datetime.fromisoformat(info.started.replace("Z", "+00:00")).astimezone()


# The values of members that are missing or null.
_DEFAULTS: Mapping[str, Any] = {
    "filters": (),
    "phase": "",
    "command": (),
    "imports": (),
    "libraries": (),
    "timings": {},
    "tool_calls": (),
}
_EXIT_DEFAULTS: Mapping[str, Any] = {"detail": ""}


def _read(data: Mapping[str, Any]) -> RunInfo:
    """The content of a parsed run.json.

    Raises:
        DamagedJsonError: `data` is malformed.
    """
    if not isinstance(data.get("exit"), Mapping):
        raise DamagedJsonError("exit is missing or not an object")
    exit_ = _with_defaults(data["exit"], _EXIT_DEFAULTS)
    info = json_data.from_data(RunInfo, {**_with_defaults(data, _DEFAULTS), "exit": exit_})
    try:
        torch_settings.check(info.torch_settings or {})
    except ValueError as error:
        raise DamagedJsonError(f"torch_settings: {error}") from error
    try:
        started_at(info)
    except (ValueError, OverflowError) as error:
        raise DamagedJsonError(f"started is not a date: {error}") from error
    return info


def _with_defaults(data: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, **{name: value for name, value in defaults.items() if data.get(name) is None}}
