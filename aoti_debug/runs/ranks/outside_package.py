"""A rank that was outside of the package when it was ended, by the stack that the signal found."""

from __future__ import annotations

import re

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.base.native import crash_stacks
from aoti_debug.base.native.frames import StackFrame
from aoti_debug.runs.rundir.run_directory import RunDir

_COLLECTIVE = re.compile(r"\bc10d::|\bgloo::|\bnccl[A-Z]")
_LEAVING = "Py_FinalizeEx"  # the interpreter ends


@dataclass(frozen=True)
class Outside:
    """The place outside of the package.

    Attributes:
        function: that says most: of torch.distributed, or else the innermost one that has a name.
        is_collective: it is one of torch.distributed: the rank waited for others.
        is_leaving: the interpreter was ending.
    """

    function: str
    is_collective: bool
    is_leaving: bool


def outside(run: RunDir) -> Outside | None:
    """The place by the recorded stack; None if there is none, or it must not be symbolized: the run is a stranger's.

    Raises:
        RunDirError: backtrace.json cannot be read.
    """
    backtrace = crash_stacks.read(run.path) or (crash_stacks.decode(run.path) if run.is_made_here else None)
    stack = None if backtrace is None else backtrace.died or next(iter(backtrace.stacks), None)
    named = [frame for frame in stack.frames if frame.function] if stack is not None else []
    if not named:
        return None
    waits = next((frame for frame in named if _COLLECTIVE.search(frame.function)), None)
    return Outside(_name(waits or named[0]), waits is not None, any(f.function == _LEAVING for f in named))


def _name(frame: StackFrame) -> str:
    """The function without its arguments."""
    return frame.function.partition("(")[0]
