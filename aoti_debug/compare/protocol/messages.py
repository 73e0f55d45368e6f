"""The messages of the process that evaluates regions; each is one line of JSON."""

from __future__ import annotations

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.processes.messages import ErrorData, Messages
from aoti_debug.compare.protocol import measurement
from aoti_debug.compare.protocol.bad_elements import BadOperand, Origin, Refusal


@dataclass(frozen=True)
class Started:
    """The process has imported what it needs, and begins."""


@dataclass(frozen=True)
class EvaluationFailed:
    """The process is about to end with an exception."""

    error: ErrorData


Outcome = (
    measurement.RegionResult
    | Origin
    | BadOperand
    | measurement.Inherited
    | measurement.StateChange
    | measurement.StatesFailure
    | measurement.ExportedOutputs
    | measurement.AlteredProgram
    | measurement.FaultyOutput
    | measurement.OutputNoise
    | Refusal
    | measurement.ProgramFailure
    | measurement.SavedValue
    | measurement.SavedOutput
)
Message = Started | Outcome | measurement.PeakMemory | EvaluationFailed

_MESSAGES: Messages[Message] = Messages(
    {
        "started": Started,
        "region": measurement.RegionResult,
        "origin": Origin,
        "bad operand": BadOperand,
        "inherited": measurement.Inherited,
        "state": measurement.StateChange,
        "states failure": measurement.StatesFailure,
        "exported outputs": measurement.ExportedOutputs,
        "altered program": measurement.AlteredProgram,
        "faulty output": measurement.FaultyOutput,
        "output noise": measurement.OutputNoise,
        "refusal": Refusal,
        "program failure": measurement.ProgramFailure,
        "saved value": measurement.SavedValue,
        "saved output": measurement.SavedOutput,
        "peak memory": measurement.PeakMemory,
        "failed": EvaluationFailed,
    }
)
message_line = _MESSAGES.line
read_message = _MESSAGES.read
