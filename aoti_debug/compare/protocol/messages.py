"""The messages of the process that evaluates regions, each a line of JSON, and the values that it saves in files.

The values are those of the outputs of the first wrong launch, in float64: FOLDER/program_values/ARGUMENT.safetensors. A
repro that has tensors/program_ARGUMENT.safetensors prints how its outputs differ from them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.processes.messages import ErrorData, Messages
from aoti_debug.compare.protocol import measurement
from aoti_debug.compare.protocol.bad_elements import BadOperand, Origin, Refusal
from aoti_debug.runs.rundir.formats.tensor_file_format import escape

if TYPE_CHECKING:
    import torch

_FOLDER = "program_values"


def save(folder: Path, argument: str, value: torch.Tensor) -> None:
    """Saves what the program gives for an output, complex numbers in complex64. Runs in a child process.

    Raises:
        OSError: it cannot be written.
    """
    import torch
    from safetensors.torch import save_file

    if value.is_complex():  # the format has no complex128
        value = value.resolve_conj().to(torch.complex64)
    (folder / _FOLDER).mkdir(exist_ok=True)
    save_file({argument: value.cpu().contiguous()}, folder / _FOLDER / f"{escape(argument)}.safetensors")


def move_to_repro(folder: Path, repro: Path) -> None:
    """Moves the saved values into a repro's folder; none were saved if nothing was wrong.

    Raises:
        OSError: they cannot be moved.
    """
    for path in (folder / _FOLDER).glob("*.safetensors"):
        shutil.move(path, repro / "tensors" / f"program_{path.name}")
    shutil.rmtree(folder / _FOLDER, ignore_errors=True)


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
    | measurement.UndefinedResult
    | measurement.InexactResult
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
        "undefined result": measurement.UndefinedResult,
        "inexact result": measurement.InexactResult,
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
