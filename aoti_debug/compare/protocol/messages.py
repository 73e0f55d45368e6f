"""The messages of the process that evaluates, each a line of JSON, with the bad elements that they tell of.

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
from aoti_debug.runs.diagnosis.verdict_text import element_text, more_text, table_text
from aoti_debug.runs.rundir.formats.tensor_file_format import escape

if TYPE_CHECKING:
    import torch

_FOLDER = "program_values"


@dataclass(frozen=True)
class TracedElement:
    """A non-finite element of an output of a launch, to be followed to the operator that made it.

    Attributes:
        element: its row-major index in the recorded tensor.
    """

    launch: str
    argument: str
    element: int


@dataclass(frozen=True, kw_only=True)
class Operand:
    """An argument of an operator: the elements, or the number, that one element of its result was computed from.

    Attributes:
        name: the node; "" for a number in the call.
        index: the coordinates of the one element that counts; () for several, or for a number.
        value: of the one element, or the number; None for several elements.
        count: how many elements count.
        zeros, plus_infinities, minus_infinities: among them.
    """

    name: str
    index: tuple[int, ...] = ()
    value: str | None = None
    count: int = 1
    zeros: int = 0
    plus_infinities: int = 0
    minus_infinities: int = 0


@dataclass(frozen=True, kw_only=True)
class Made:
    """A non-finite number that an operator made of others.

    Attributes:
        node: "div_1".
        operator: "aten.div.Tensor".
        dtype: of the result.
        index: its coordinates in the operator's result.
        value: "nan", "inf", "-inf".
        exact: what the operator gives for the same operands in float64.
        reduces: several elements of an operand count.
        sizes: the arguments of several integers, as a window, as text: "[3, 3]".
    """

    node: str
    operator: str
    dtype: str
    index: tuple[int, ...]
    value: str
    exact: str
    operands: tuple[Operand, ...]
    reduces: bool
    sizes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Origin:
    """The operators that made an element of an output non-finite.

    Attributes:
        made: the first number on the way to it: made from finite ones, or NaN from an infinity that is meant.
        became: the NaN that an infinity in `made` turned into; None if that is itself what the output holds.
    """

    traced: TracedElement
    made: Made
    became: Made | None = None


@dataclass(frozen=True)
class Computed:
    """The elementwise operator that computed a number, in the same launch, and the elements that it computed it from.

    Attributes:
        node: "add_1".
        operator: "aten.add.Tensor".
        dtype: of the result.
        exact: the result for the same operands in float64; "nan" where the operator has none.
    """

    node: str
    operator: str
    dtype: str
    operands: tuple[Operand, ...]
    exact: str


@dataclass(frozen=True, kw_only=True)
class BadSource:
    """The element of a recorded value that a bad element comes from, found by evaluating the graph with other numbers.

    Attributes:
        node: the node whose value it is; a graph's input where that was recorded.
        element: its row-major index in it; None if only several elements together make the bad one.
        index: its coordinates; () for those several.
        value: of the element; "" without one.
        instead: a number with which, in its place, the element would not be bad; "" for the bad element itself.
        alone: False if another element makes the same element bad, too.
        recorded: the launch that read or wrote the value, and its argument: "0.2", "buf1".
    """

    node: str
    element: int | None
    index: tuple[int, ...]
    value: str
    instead: str
    alone: bool
    recorded: tuple[str, str] = ("", "")


@dataclass(frozen=True, kw_only=True)
class BadOperand:
    """The first element, in the order of the graph, of an operand that an operator cannot use.

    Attributes:
        node: the operator's node: "index_1".
        operator: "aten.index.Tensor".
        name: the operand's node: "arg1_1".
        index: the coordinates of the element in it.
        value: of the element.
        count: how many elements of the operand are bad.
        table: the node that is indexed; "" for a divisor.
        dimension, size: the dimension of the table that is indexed, and its size.
        computed: what computed the element in this launch; None if the launch read it.
        dividend: the number that is divided, where the divisor is -1 and the quotient too large for its dtype; else "".
        source: the value before the launch that it comes from; None if that cannot be told.
    """

    launch: str
    node: str
    operator: str
    name: str
    index: tuple[int, ...]
    value: int
    count: int
    table: str = ""
    dimension: int = 0
    size: int = 0
    computed: Computed | None = None
    dividend: str = ""
    source: BadSource | None = None

    @property
    def text(self) -> str:
        """ "aten.index.Tensor: index[5] is 1000000, table has 1000 rows"."""
        return f"{self.operator}: {self.problem}"

    @property
    def problem(self) -> str:
        """ "index[5] is 1000000, table has 1000 rows"."""
        text = f"{element_text(self.name, self.index)} is {self.value}"
        if self.table:
            text += f", {table_text(self.table, self.dimension, self.size)}"
        if self.dividend:
            text += f", and {self.dividend} / {self.value} does not fit into its dtype"
        return text + more_text(self.count)


@dataclass(frozen=True)
class InputElement:
    """An element of an input, a weight or a buffer of the exported program.

    Attributes:
        name: of the input, or the attribute of the model.
        index: its coordinates.
        number: its row-major index.
        value: its value as text.
    """

    name: str
    index: tuple[int, ...]
    number: int
    value: str


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The exception that the exported program raises in eager, called with the inputs of the run.

    Attributes:
        error: the type of the exception: "IndexError".
        words: the first line of its text.
        node, operator: what raised it, in the graph of the exported program; "" where that is not known.
        bad: the element of an operand that the operator cannot use; None where none was seen.
        inputs: the elements of inputs and weights that this one was computed from; () where they are not known.
        call: the number of the call, from 0.
    """

    error: str
    words: str
    node: str = ""
    operator: str = ""
    bad: BadOperand | None = None
    inputs: tuple[InputElement, ...] = ()
    call: int = 0


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
