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


class ToolchainError(AotiDebugError):
    exit_code = 4


class TargetError(AotiDebugError):
    exit_code = 5


class RunDirError(AotiDebugError):
    exit_code = 6


class InternalError(AotiDebugError):
    exit_code = 70
