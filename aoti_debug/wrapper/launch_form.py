"""A launch form: how generated C++ writes a launch, and the traits of such launches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from aoti_debug.manifest import Kind
from aoti_debug.wrapper.calls import CallExpression
from aoti_debug.wrapper.context import FunctionContext, Reading


class RunsOn(Enum):
    """The device that a launch runs on."""

    HOST = "host"
    DEVICE = "device"
    TENSORS = "tensors"  # where its tensors are


@dataclass(frozen=True)
class LaunchTraits:
    """The traits that the launches of one kind share.

    Attributes:
        compiled_for_layouts: the kernel was generated for one layout of its arguments and ignores the real one.
        keeps_old_elements: it may write only a part of an output that has contents already.
        user_operator: it is a custom operator, whose fake kernel describes its results.
        allocates_outputs: it allocates its own outputs.
        waits_for_device: it returns only when the device has completed all earlier work.
        word: the name of a launch without an operator in the model's source.
        replay: the module of aoti_debug/repro/ that replays it: "cpp"; "" for none.
        not_replayed: the reason why there is none.
    """

    runs_on: RunsOn = RunsOn.TENSORS
    compiled_for_layouts: bool = False
    keeps_old_elements: bool = False
    user_operator: bool = False
    allocates_outputs: bool = False
    waits_for_device: bool = False
    word: str = ""
    replay: str = ""
    not_replayed: str = ""


@dataclass(frozen=True)
class LaunchForm:
    """One way in which generated C++ writes a launch.

    Attributes:
        callees: the names of the functions that are called so.
        read: reads a call of such a function, or of one that the wrapper declares itself; None if it has another form.
        kinds: the kinds of its launches, with their traits.
    """

    callees: re.Pattern[str]
    read: Callable[[CallExpression, FunctionContext], Reading | None]
    kinds: Mapping[Kind, LaunchTraits]
