"""Exceptions as data, to send them from a child process to its parent."""

from __future__ import annotations

from aoti_debug.base import errors
from aoti_debug.base.errors import AotiDebugError, InputMismatch, Mismatch
from aoti_debug.base.frozen import dataclass


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
    """

    type: str
    message: str
    ours: str = ""
    hint: str = ""
    mismatches: tuple[Mismatch, ...] = ()
    code: int | None = None

    @classmethod
    def from_exception(cls, error: BaseException) -> ErrorData:
        """Describes an exception."""
        code = getattr(error, "error_code", None)
        return cls(
            type=type(error).__name__,
            message=str(error),
            ours=_name(error) if isinstance(error, AotiDebugError) else "",
            hint=error.hint if isinstance(error, AotiDebugError) else "",
            mismatches=error.mismatches if isinstance(error, InputMismatch) else (),
            code=int(code) if isinstance(code, int) else None,
        )

    def to_error(self) -> AotiDebugError | None:
        """Recreates an error of this library, to be raised in this process; None for any other exception."""
        if not self.ours:
            return None
        if self.ours == InputMismatch.__name__:
            return InputMismatch(self.mismatches)
        return errors.BY_NAME[self.ours](self.message, hint=self.hint)


def _name(error: AotiDebugError) -> str:
    """The name of the nearest class in the table."""
    return next(cls.__name__ for cls in type(error).__mro__ if errors.BY_NAME.get(cls.__name__) is cls)
