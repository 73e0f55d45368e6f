"""A launch form: how the generated C++ writes a launch, and what is true of such launches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from aoti_debug.manifest import Kind
from aoti_debug.wrapper.calls import CallExpression
from aoti_debug.wrapper.context import FunctionContext, Reading


class RunsOn(Enum):
    """Where a launch runs."""

    HOST = "host"
    DEVICE = "device"
    TENSORS = "tensors"  # where its tensors are


@dataclass(frozen=True)
class LaunchTraits:
    """What the launches of one kind have in common.

    Attributes:
        compiled_for_layouts: the kernel was generated for one layout of its arguments, and does not look at another.
        keeps_old_elements: an output that holds something already may be written in part only.
        user_operator: it is an operator of the user's, whose fake kernel foretells its results.
        allocates_outputs: it allocates the tensors that it is to fill.
        waits_for_device: it returns when the device has done all that was asked of it.
        word: what the model's source calls a launch that has no operator.
        replay: the module of aoti_debug/repro/ that replays it: "cpp"; "" for none.
        not_replayed: why there is none.
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
    """
    Attributes:
        callees: the names of the functions that are called so.
        read: what a call launches; None where it is not of this form. It is also asked about other functions that the
            wrapper declares itself.
        kinds: those of its launches.
    """

    callees: re.Pattern[str]
    read: Callable[[CallExpression, FunctionContext], Reading | None]
    kinds: Mapping[Kind, LaunchTraits]
