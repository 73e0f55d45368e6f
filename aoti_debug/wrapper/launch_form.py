"""A launch form: how generated C++ writes a launch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from aoti_debug.wrapper.calls import CallExpression
from aoti_debug.wrapper.context import FunctionContext, Reading


@dataclass(frozen=True)
class LaunchForm:
    """One way in which generated C++ writes a launch.

    Attributes:
        callees: the names of the functions that are called so.
        read: reads a call of such a function, or of one that the wrapper declares itself; None if it has another form.
    """

    callees: re.Pattern[str]
    read: Callable[[CallExpression, FunctionContext], Reading | None]
