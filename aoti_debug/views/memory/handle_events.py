"""The statements of a wrapper that make, rename and drop tensor handles, in the order of the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax import lexer
from aoti_debug.instrument.wrapper.cpp_syntax.functions import Body, entry_points
from aoti_debug.package.manifest import Allocation

_STATEMENTS = re.compile(
    r"\b(?:auto\s+)?(?P<moved>\w+)\s*=\s*std::move\((?P<old>\w+)\)\s*;"
    r"|\b(?:auto|RAIIAtenTensorHandle)\s+(?P<view>\w+)\s*(?:=\s*|\()\s*"
    r"(?:RAIIAtenTensorHandle\(|wrap_with_raii_handle_if_needed\()?\s*reinterpret_tensor_wrapper\((?P<viewed>\w+)\s*,"
    r"|\baoti_torch_assign_tensors_out\((?P<assigned>\w+)\s*,\s*&(?P<copy>\w+)_handle\)"
    r"|\baoti_torch__alloc_from_pool\((?P<pool>\w+)\s*,"
    r"|\b(?P<dropped>\w+)\.reset\(\)\s*;"
    r"|\b(?P<loop>while)\s*\(\s*1\s*\)\s*\{"
)


class HandleUse(str, Enum):
    """The effect of a statement on handles."""

    MOVE = "move"  # the tensor has another name from here on: its memory is used again
    VIEW = "view"  # a second handle to the same memory
    DROP = "drop"
    LOOP = "loop"  # the body of a loop begins: an iteration begins again here


@dataclass(frozen=True)
class HandleEvent:
    """A statement that changes which handles there are.

    Attributes:
        function: "run_impl" or "_const_run_impl".
        line: in the wrapper, from 1.
        name: the handle that is made or dropped.
        source: the handle that it is moved from or views; "" of a drop and of a loop.
    """

    function: str
    line: int
    action: HandleUse
    name: str
    source: str = ""


def handle_events(text: str, allocations: Iterable[Allocation]) -> tuple[HandleEvent, ...]:
    """The handle events of the model's functions; without allocations, except those from a pool, which are views of it.

    Args:
        allocations: of the manifest; they say which buffer an allocation is for.

    Raises:
        ArtifactError: the text is no wrapper.
    """
    masked = lexer.mask(text)
    names = {allocation.line: allocation.name for allocation in allocations}
    return tuple(event for body in entry_points(masked) for event in _in_body(masked, body, names))


def _in_body(masked: str, body: Body, names: Mapping[int, str]) -> Iterator[HandleEvent]:
    line, counted = masked.count("\n", 0, body.opening) + 1, body.opening
    for match in _STATEMENTS.finditer(masked, body.opening, body.closing):
        line += masked.count("\n", counted, match.start())
        counted = match.start()
        action, name, source = HandleUse.VIEW, match["view"], match["viewed"]
        if match["moved"]:
            action, name, source = HandleUse.MOVE, match["moved"], match["old"]
        elif match["copy"]:
            name, source = match["copy"], match["assigned"]
        elif match["pool"]:
            name, source = names.get(line, ""), match["pool"]
        elif match["dropped"]:
            action, name, source = HandleUse.DROP, match["dropped"], ""
        elif match["loop"]:
            action, name, source = HandleUse.LOOP, "", ""
        yield HandleEvent(body.name, line, action, name, source)
