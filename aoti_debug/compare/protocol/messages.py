"""The messages of the process that evaluates regions; each is one line of JSON."""

from __future__ import annotations

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.processes.messages import ErrorData, Messages
from aoti_debug.compare.protocol.bad_elements import BadOperand, Origin, Refusal
from aoti_debug.compare.protocol.measurement import (
    AlteredProgram,
    ExportedOutputs,
    FaultyOutput,
    Inherited,
    OutputNoise,
    PeakMemory,
    ProgramFailure,
    RegionResult,
    SavedOutput,
    SavedValue,
    StateChange,
    StatesFailure,
)


@dataclass(frozen=True)
class Started:
    """The process has imported what it needs, and begins."""


@dataclass(frozen=True)
class EvaluationFailed:
    """The process is about to end with an exception."""

    error: ErrorData


Outcome = (
    RegionResult
    | Origin
    | BadOperand
    | Inherited
    | StateChange
    | StatesFailure
    | ExportedOutputs
    | AlteredProgram
    | FaultyOutput
    | OutputNoise
    | Refusal
    | ProgramFailure
    | SavedValue
    | SavedOutput
)
Message = Started | Outcome | PeakMemory | EvaluationFailed

_MESSAGES: Messages[Message] = Messages(
    {
        "started": Started,
        "region": RegionResult,
        "origin": Origin,
        "bad operand": BadOperand,
        "inherited": Inherited,
        "state": StateChange,
        "states failure": StatesFailure,
        "exported outputs": ExportedOutputs,
        "altered program": AlteredProgram,
        "faulty output": FaultyOutput,
        "output noise": OutputNoise,
        "refusal": Refusal,
        "program failure": ProgramFailure,
        "saved value": SavedValue,
        "saved output": SavedOutput,
        "peak memory": PeakMemory,
        "failed": EvaluationFailed,
    }
)
message_line = _MESSAGES.line
read_message = _MESSAGES.read
