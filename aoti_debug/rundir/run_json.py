"""run.json: what was run, how, and how it ended."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from aoti_debug.abi import Variable
from aoti_debug.errors import RunDirError
from aoti_debug.machine import files, json_data
from aoti_debug.machine.json_data import DamagedJsonError

NAME = "run.json"
FORMAT = 1

_HEX_BYTE = re.compile(r"[0-9a-fA-F]{2}\Z")


class ExitKind(str, Enum):
    RUNNING = "running"
    CLEAN = "clean"
    FAULT = "fault"  # an exception, a device error, SIGSEGV, SIGABRT, …
    ABORTED = "aborted"  # killed from outside, or it vanished
    TIMEOUT = "timeout"
    ERROR = "error"  # the model was not loaded to the end


class Stage(str, Enum):
    """How far the process of `aoti-debug run` came."""

    IMPORT = "import"
    INPUTS = "inputs"
    LOAD = "load"
    CALL = "call"
    SYNCHRONISE = "synchronise"  # waiting for the device after the last call
    UNLOAD = "unload"


@dataclass(frozen=True)
class Exit:
    kind: ExitKind
    detail: str = ""  # for people: "SIGSEGV", "RuntimeError: …"
    stage: Stage | None = None
    signal: str = ""  # "SIGSEGV"; "" where no signal ended it
    exception: str = ""  # the Python type's name
    code: int | None = None  # the device error's code, where the exception carries one
    seconds: float | None = None  # of the calls


@dataclass(frozen=True)
class RunInfo:
    tool_version: str | None  # None where the package does not say, as torch_version
    torch_version: str | None
    pid: int
    started: str  # ISO 8601
    level: int
    filters: tuple[str, ...]
    phase: str  # "before", "after", "both", "" for the level's own choice
    device: str  # "cpu" or "cuda"
    command: tuple[str, ...]
    host: str  # "aoti-debug run", or "embedded" where any other program loaded the package
    exit: Exit = Exit(ExitKind.RUNNING)
    calls: int = 1
    imports: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    guards: bool = False  # zones of known bytes around buffers
    poison: int | None = None  # the byte that buffers were filled with
    format: int = FORMAT


def to_json(info: RunInfo) -> str:
    data = asdict(info)
    return json.dumps({"format": data.pop("format"), **data, "phase": info.phase or None}, indent=1) + "\n"


def write(info: RunInfo, run: Path) -> None:
    """Replaces run.json in one step."""
    files.write(run / NAME, to_json(info))


def read(run: Path) -> RunInfo:
    """Raises:
    RunDirError: there is none, it is damaged, or of another format version.
    """
    path = run / NAME
    try:
        return _read(json_data.parse_versioned(path.read_bytes(), FORMAT))
    except OSError as error:
        raise RunDirError(
            f"{run} is no run directory: {NAME}: {error.strerror}", hint="aoti-debug run PACKAGE.pt2 makes one"
        ) from error
    except json_data.OtherFormatError as error:
        raise RunDirError(f"{run} has {error}", hint="read it with the version of aoti-debug that wrote it") from error
    except DamagedJsonError as error:
        raise RunDirError(f"{path} is damaged: {error}", hint="run the package again") from error


def poison_in_force(guards: bool, poison: int | None) -> int | None:
    """The byte that guarded buffers begin with: what was asked for, else the environment's, else the default.

    None: there are no guards.
    """
    if not guards and os.environ.get(Variable.GUARDS.value) != "1":
        return None
    if poison is not None:
        return poison
    given = os.environ.get(Variable.POISON.value, "")
    return int(given, 16) if _HEX_BYTE.match(given) else 0xFF


def started_at(info: RunInfo) -> datetime:
    return datetime.fromisoformat(info.started.replace("Z", "+00:00")).astimezone()


# What takes the place of a member that is missing or null.
_EMPTY: Mapping[str, Any] = {"filters": (), "phase": "", "command": (), "imports": (), "libraries": ()}
_EMPTY_OF_EXIT: Mapping[str, Any] = {"detail": ""}


def _read(data: Mapping[str, Any]) -> RunInfo:
    """Raises:
    DamagedJsonError: `data` is no run.json.
    """
    if not isinstance(data.get("exit"), Mapping):
        raise DamagedJsonError("exit is missing or no object")
    exit_ = _completed(data["exit"], _EMPTY_OF_EXIT)
    info = json_data.from_data(RunInfo, {**_completed(data, _EMPTY), "exit": exit_})
    try:
        started_at(info)
    except (ValueError, OverflowError) as error:
        raise DamagedJsonError(f"started is no date: {error}") from error
    return info


def _completed(data: Mapping[str, Any], empty: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, **{name: value for name, value in empty.items() if data.get(name) is None}}
