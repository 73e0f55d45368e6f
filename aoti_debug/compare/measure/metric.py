"""The user's own measure of an output, `compare --metric FILE.py:FUNCTION`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.user_code import UserFunction

Metric: TypeAlias = Callable[[Any, Any], float]


def metric_function(text: str) -> UserFunction:
    """The user's function "FILE.py:FUNCTION" of --metric."""
    return UserFunction("--metric", text, "names a function of two tensors, actual and expected, that returns a number")


def metric_of(text: str) -> Metric | None:
    """The user's function "FILE.py:NAME"; None for "".

    Raises:
        UsageError: there is no such file or function; from a call: it raised an exception.
    """
    if not text:
        return None
    named = metric_function(text)
    function = named.load()

    def metric(actual: Any, expected: Any) -> float:
        try:
            return float(function(actual, expected))
        except Exception as error:
            tensor = f"{str(actual.dtype).removeprefix('torch.')}{list(actual.shape)}"
            raise UsageError(
                f"--metric {text} fails for {tensor}: {type(error).__name__}: {wording.first_line(str(error))}",
                hint=named.hint,
            ) from error

    return metric
