"""The errors that the library raises, with their exit codes.

    AotiDebugError
     ├─ ModelFaultError   1   the model crashed or hung where a command needs it to end well
     ├─ UsageError        2   the command line or an argument is wrong
     ├─ ArtifactError     3   a .pt2, inputs file or archive is not what it should be
     ├─ ToolchainError    4   compiler, linker or torch cannot do what is needed
     ├─ TargetError       5   the model never started
     ├─ RunDirError       6   a run directory cannot be read
     └─ InternalError    70   a bug of aoti-debug

0 stands for clean and 1 for a finding: a fault of the model that is being debugged is a result, not an error.
So is 7: a finding for which nothing was found that a triage confirms; and 8: clean as far as it could be compared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import ClassVar

from aoti_debug.base.frozen import dataclass

EXIT_CLEAN = 0
EXIT_FINDING = 1
EXIT_UNCONFIRMED = 7
EXIT_INCOMPLETE = 8


class AotiDebugError(Exception):
    """Base of all errors that the library raises.

    Attributes:
        hint: the next step for the user, a sentence or a command line; may be empty.
        exit_code: the exit code of the command line for it.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ModelFaultError(AotiDebugError):
    """The model crashed, hung or raised an exception, and a command needs it to end well."""

    exit_code = EXIT_FINDING


class UsageError(AotiDebugError):
    """The command line or an argument is wrong."""

    exit_code = 2


class ArtifactError(AotiDebugError):
    """A package, an inputs file or an archive is damaged, or not of the expected kind."""

    exit_code = 3


@dataclass(frozen=True)
class Mismatch:
    """An input that the model was not exported for.

    Attributes:
        name: its name in the exported program; "" if the number of inputs is wrong, or a package does not record it.
        position: among the flattened inputs, from 0; -1 for their number.
        kind: the property that differs: "count", "kind" (no tensor, or another constant), "dtype", "shape", "strides",
            "device", "mark" (torch negates or conjugates it when it reads it), "storage" or "missing" (of a
            weight).
        promised, found: the expected and the actual value: "float32[4, 8] on cpu"; only the strides or the device if
            these differ.
        sentence: the error text.
        advice: the way to fix it.
    """

    name: str
    position: int
    kind: str
    promised: str
    found: str
    sentence: str
    advice: str


class InputMismatch(ArtifactError):  # noqa: N818 - a public name
    """Inputs that the model was not exported for.

    Attributes:
        mismatches: all of them, by position.
    """

    def __init__(self, mismatches: Iterable[Mismatch]) -> None:
        self.mismatches = tuple(mismatches)
        super().__init__(
            "\n".join(dict.fromkeys(mismatch.sentence for mismatch in self.mismatches)),
            hint="; ".join(dict.fromkeys(mismatch.advice for mismatch in self.mismatches)),
        )


class ToolchainError(AotiDebugError):
    """The compiler, linker or torch is missing, or failed.

    A traceback has the hint as well: a program that calls this library may raise it.
    """

    exit_code = 4

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        if hint and sys.version_info >= (3, 11):
            self.add_note(f"hint: {hint}")


class TargetError(AotiDebugError):
    """The model never started."""

    exit_code = 5


class RunDirError(AotiDebugError):
    """A run directory cannot be read."""

    exit_code = 6


class InternalError(AotiDebugError):
    """A bug of aoti-debug."""

    exit_code = 70


BY_NAME: Mapping[str, type[AotiDebugError]] = {
    "AotiDebugError": AotiDebugError,
    "ModelFaultError": ModelFaultError,
    "UsageError": UsageError,
    "ArtifactError": ArtifactError,
    "InputMismatch": InputMismatch,
    "ToolchainError": ToolchainError,
    "TargetError": TargetError,
    "RunDirError": RunDirError,
    "InternalError": InternalError,
}  # by class name, for errors that are sent from one process to another
