"""The messages of the process that evaluates regions; each is one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from aoti_debug.compare.measurement import Inherited, ProgramFailure, RegionResult
from aoti_debug.machine import json_data
from aoti_debug.machine.error_data import ErrorData
from aoti_debug.machine.json_data import DamagedJsonError

_TAG = "message"


@dataclass(frozen=True)
class Failed:
    """The process is about to end with an exception."""

    error: ErrorData


Message = RegionResult | Inherited | ProgramFailure | Failed

_MESSAGES: Mapping[str, type[Message]] = {
    "region": RegionResult,
    "inherited": Inherited,
    "program failure": ProgramFailure,
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
