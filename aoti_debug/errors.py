"""Every error that the library raises, with its exit code.

    AotiDebugError
     ├─ UsageError        2   the command line or an argument is wrong
     ├─ ArtifactError     3   a .pt2, inputs file or archive is not what it should be
     ├─ ToolchainError    4   compiler, linker or torch cannot do what is needed
     ├─ TargetError       5   the model never started
     ├─ RunDirError       6   a run directory cannot be read
     └─ InternalError    70   a bug of ours

0 stands for clean and 1 for a finding: a fault of the model that is being debugged is a result, not an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

EXIT_CLEAN = 0
EXIT_FINDING = 1


class AotiDebugError(Exception):
    """Base of all errors that the library raises.

    Attributes:
        hint: what to do next, one sentence or a command line; may be empty.
        exit_code: what the command line returns for it.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(AotiDebugError):
    exit_code = 2


class ArtifactError(AotiDebugError):
    exit_code = 3


@dataclass(frozen=True)
class Mismatch:
    """An input that is not what the model was exported for.

    Attributes:
        name: as the exported program names it; "" where the count of the inputs is wrong.
        position: among the flattened inputs, from 0; -1 for their count.
        kind: what is wrong: "count", "kind" (no tensor, or another constant), "dtype", "shape", "strides", "device".
        promised, found: "float32[4, 8] on cpu"; for strides and devices, these alone.
        sentence: what is wrong.
        advice: what to do.
    """

    name: str
    position: int
    kind: str
    promised: str
    found: str
    sentence: str
    advice: str


class InputMismatch(ArtifactError):  # noqa: N818 - what it is, not that it is an error
    """Inputs that the model was not exported for.

    Attributes:
        mismatches: all of them, by position.
    """

    def __init__(self, mismatches: Iterable[Mismatch]) -> None:
        self.mismatches = tuple(mismatches)
        super().__init__(
            "\n".join(found.sentence for found in self.mismatches),
            hint="; ".join(dict.fromkeys(found.advice for found in self.mismatches)),
        )


class ToolchainError(AotiDebugError):
    exit_code = 4


class TargetError(AotiDebugError):
    exit_code = 5


class RunDirError(AotiDebugError):
    exit_code = 6


class InternalError(AotiDebugError):
    exit_code = 70


BY_NAME: Mapping[str, type[AotiDebugError]] = {
    "AotiDebugError": AotiDebugError,
    "UsageError": UsageError,
    "ArtifactError": ArtifactError,
    "InputMismatch": InputMismatch,
    "ToolchainError": ToolchainError,
    "TargetError": TargetError,
    "RunDirError": RunDirError,
    "InternalError": InternalError,
}  # all of them, for an error that crosses the border of a process
