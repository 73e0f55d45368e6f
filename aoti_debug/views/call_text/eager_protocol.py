"""The request to the process that runs a program in eager, and its answer."""

from __future__ import annotations

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.processes.messages import ErrorData
from aoti_debug.views.call_text.call import Call


@dataclass(frozen=True)
class EagerRequest:
    """A program to call once in eager.

    Attributes:
        program: the file of the exported program.
        package: the instrumented package, whose inputs are taken.
        inputs: a file of inputs; "" for those embedded in the package.
        hashes: with the hashes of tensors.
        values: with the statistics of tensors.
        imports, libraries: what registers the program's operators.
    """

    program: str
    package: str
    inputs: str
    hashes: bool
    values: bool
    imports: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True)
class EagerCall:
    """A call of an operator in eager.

    Attributes:
        stack: the index of the stack that it was exported with in `EagerAnswer.stacks`; -1 without one.
    """

    call: Call
    stack: int


@dataclass(frozen=True)
class EagerAnswer:
    """The calls of a program in their order.

    Attributes:
        error: the exception that ended the program, or kept it from being called; None if it returned.
    """

    calls: tuple[EagerCall, ...]
    stacks: tuple[str, ...]
    error: ErrorData | None = None
