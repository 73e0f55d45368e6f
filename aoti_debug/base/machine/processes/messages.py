"""Typed messages of a child process, each one line of JSON with a tag that names its class; exceptions as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from aoti_debug.base import errors, wording
from aoti_debug.base.errors import AotiDebugError, InputMismatch, Mismatch, TargetError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.exhaustion import exhausted
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.files.json_data import DamagedJsonError

_TAG = "message"
M = TypeVar("M")


@dataclass(frozen=True)
class ErrorData:
    """An exception raised in a child process.

    Attributes:
        type: the name of its class, "RuntimeError".
        message: its text.
        ours: its name in `errors.BY_NAME`, for an error of this library; "" for any other exception.
        hint: for an error of this library.
        mismatches: for an InputMismatch.
        code: its `error_code`, which torch sets for a device error; None if it has none.
        lacks: what is exhausted, "disk space", of an exception that says so; "" otherwise. The hint says what helps.
    """

    type: str
    message: str
    ours: str = ""
    hint: str = ""
    mismatches: tuple[Mismatch, ...] = ()
    code: int | None = None
    lacks: str = ""

    @classmethod
    def from_exception(cls, error: BaseException) -> ErrorData:
        """Describes an exception."""
        code = getattr(error, "error_code", None)
        lack = None if isinstance(error, AotiDebugError) else exhausted(error)
        return cls(
            type=type(error).__name__,
            message=str(error),
            ours=_name(error) if isinstance(error, AotiDebugError) else "",
            hint=error.hint if isinstance(error, AotiDebugError) else lack.hint if lack is not None else "",
            mismatches=error.mismatches if isinstance(error, InputMismatch) else (),
            code=int(code) if isinstance(code, int) else None,
            lacks="" if lack is None else lack.what,
        )

    def to_error(self) -> AotiDebugError | None:
        """Recreates an error of this library, or makes one of an exhausted resource; None for any other exception."""
        if self.lacks:
            text = wording.first_line(self.message) or self.type
            return TargetError(f"not enough {self.lacks}: {text}", hint=self.hint)
        if not self.ours:
            return None
        if self.ours == InputMismatch.__name__:
            return InputMismatch(self.mismatches)
        return errors.BY_NAME[self.ours](self.message, hint=self.hint)


def _name(error: AotiDebugError) -> str:
    """The name of the nearest class in the table."""
    return next(cls.__name__ for cls in type(error).__mro__ if errors.BY_NAME.get(cls.__name__) is cls)


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
