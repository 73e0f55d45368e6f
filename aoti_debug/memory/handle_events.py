"""The statements of a wrapper that make, rename and drop tensor handles, in the order of the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from aoti_debug.wrapper import lexer
from aoti_debug.wrapper.functions import entry_points

_STATEMENTS = re.compile(
    r"\bauto\s+(?P<moved>\w+)\s*=\s*std::move\((?P<old>\w+)\)\s*;"
    r"|\b(?:auto|RAIIAtenTensorHandle)\s+(?P<view>\w+)\s*(?:=\s*|\()\s*(?:RAIIAtenTensorHandle\(|wrap_with_raii_handle_if_needed\()?"
    r"\s*reinterpret_tensor_wrapper\((?P<viewed>\w+)\s*,"
    r"|\b(?P<dropped>\w+)\.reset\(\)\s*;"
)


class Action(str, Enum):
    """The effect of a statement on handles."""

    MOVE = "move"  # the tensor has another name from here on: its memory is used again
    VIEW = "view"  # a second handle to the same memory
    DROP = "drop"


@dataclass(frozen=True)
class HandleEvent:
    """A statement that changes which handles there are.

    Attributes:
        function: "run_impl" or "_const_run_impl".
        line: in the wrapper, from 1.
        name: the handle that is made or dropped.
        source: the handle that it is moved from or views; "" of a drop.
    """

    function: str
    line: int
    action: Action
    name: str
    source: str = ""


def handle_events(text: str) -> tuple[HandleEvent, ...]:
    """The handle events of the model's functions.

    Raises:
        ArtifactError: the text is no wrapper.
    """
    masked = lexer.mask(text)
    return tuple(event for body in entry_points(masked) for event in _in_body(masked, body.name, body.opening, body.closing))


def _in_body(masked: str, function: str, begin: int, end: int) -> Iterator[HandleEvent]:
    line, counted = masked.count("\n", 0, begin) + 1, begin
    for match in _STATEMENTS.finditer(masked, begin, end):
        line += masked.count("\n", counted, match.start())
        counted = match.start()
        if match["moved"]:
            yield HandleEvent(function, line, Action.MOVE, match["moved"], match["old"])
        elif match["view"]:
            yield HandleEvent(function, line, Action.VIEW, match["view"], match["viewed"])
        else:
            yield HandleEvent(function, line, Action.DROP, match["dropped"])
