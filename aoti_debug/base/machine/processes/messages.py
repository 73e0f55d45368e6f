"""Typed messages of a child process, each one line of JSON with a tag that names its class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.files.json_data import DamagedJsonError

_TAG = "message"
M = TypeVar("M")


class Messages(Generic[M]):
    """The messages of one protocol: frozen dataclasses by their tags."""

    def __init__(self, classes: Mapping[str, type[M]]) -> None:
        self._classes = classes
        self._tags = {cls: tag for tag, cls in classes.items()}

    def line(self, message: M) -> str:
        """A message as one line, without its end."""
        data: Any = message
        return json.dumps({_TAG: self._tags[type(message)], **asdict(data)})

    def read(self, line: bytes) -> M:
        """Parses one line.

        Raises:
            DamagedJsonError: it is none of the messages.
        """
        data = json_data.parse_object(line)
        tag = data.get(_TAG)
        cls = self._classes.get(tag) if isinstance(tag, str) else None
        if cls is None:
            raise DamagedJsonError(f"{_TAG} is {tag!r}, not one of {', '.join(self._classes)}")
        return json_data.from_data(cls, data)
