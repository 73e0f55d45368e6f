"""The plan of a comparison: regions of a graph between recorded tensors. The process that evaluates them reads it.

Also the request to save the tensors of one region for a script, and its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.protocol.messages import TracedElement
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, ValueKey


@dataclass(frozen=True)
class Recorded:
    """A recorded tensor.

    Attributes:
        argument: its name in the launch: "buf4".
        path: of its file.
        strides: expressions of the strides of the buffer that it lies in; () if they are unknown.
        storage: the size of its storage in elements; 0 if it is unknown.
    """

    launch: str
    argument: str
    path: str
    strides: tuple[str, ...] = ()
    storage: int = 0


@dataclass(frozen=True)
class KnownValue:
    """A value of the graph, and the tensor that holds it, or a part of it.

    Attributes:
        parts: other tensors that hold other parts of it.
    """

    value: ValueKey
    recorded: Recorded
    parts: tuple[Recorded, ...] = ()


def is_kept_input(graph: Graph, node: Node) -> bool:
    """True for an input of a whole model that nothing overwrites: it is the same in every call of a run."""
    return node.kind is NodeKind.INPUT and graph.name == "" and node.name not in graph.mutators


@dataclass(frozen=True, kw_only=True)
class Region:
    """The part of a graph that computes what a launch writes from what it, and launches before it, have read.

    Attributes:
        launch: the launch that writes the outputs; "" for a part of a graph that no launch stands for.
        launches: all launches of the region, in order: also those whose outputs only exist between them.
        graph, function: the graph; see `Reference.graph`.
        nodes: those to evaluate, in order.
        inputs, outputs: the recorded values that it begins with, and those to compare.
        symbols: the values of symbolic sizes, "s77".
        notes: outputs that are not compared, and why.
        upstream: recorded values that the inputs of a launch that failed may have been computed from.
    """

    launch: str = ""
    launches: tuple[str, ...] = ()
    graph: str
    function: str
    nodes: tuple[str, ...]
    inputs: tuple[KnownValue, ...]
    outputs: tuple[KnownValue, ...] = ()
    symbols: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    upstream: tuple[KnownValue, ...] = ()


@dataclass(frozen=True)
class ProgramOutput:
    """A value of the whole program that a launch wrote."""

    launch: str
    recorded: KnownValue


@dataclass(frozen=True, kw_only=True)
class ProgramState:
    """A weight, a buffer or an input that the program overwrites, in one call.

    Attributes:
        name: the attribute of the model, "cache"; "input 0".
        node: of the graph.
        mutator: the last node that overwrites it.
        launch: the last launch that wrote it; "" if none did.
        input: its number from 0; None for a weight or a buffer.
    """

    name: str
    node: str
    mutator: str
    before: Recorded
    after: Recorded
    launch: str
    input: int | None = None


@dataclass(frozen=True, kw_only=True)
class ProgramRun:
    """One call of the whole program, from the inputs and weights that the run began it with.

    Attributes:
        outputs: what launches wrote in this call.
        symbols: the values of symbolic sizes.
        call: the number of the call.
        states: what the program overwrites in it.
    """

    graph: str
    function: str
    inputs: tuple[KnownValue, ...]
    outputs: tuple[ProgramOutput, ...]
    symbols: Mapping[str, int] = field(default_factory=dict)
    call: int = 0
    states: tuple[ProgramState, ...] = ()


@dataclass(frozen=True)
class RecordedWeight:
    """A weight, a buffer or a constant of the program, as a launch was passed it before anything overwrote it.

    Attributes:
        name: the attribute of the model, "linear.weight".
        path: of its file.
        is_view: True for one that launches were only passed other views of.
        views: these, each once.
    """

    name: str
    path: str
    is_view: bool = False
    views: tuple[Recorded, ...] = ()


@dataclass(frozen=True)
class CallStates:
    """The states that the program overwrites in one call.

    Attributes:
        call: the number of the call.
    """

    call: int
    states: tuple[ProgramState, ...]


@dataclass(frozen=True)
class GivenTensors:
    """Some of the weights, buffers and inputs of a program.

    Attributes:
        states: the attributes of the model.
        inputs: the numbers of the inputs, from 0.
    """

    states: tuple[str, ...] = ()
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExportedRun:
    """The calls of a run, to be made by the exported program in eager.

    Attributes:
        calls: their number.
        returned: a folder with what the last one returned; "" if it was not saved.
        last: the last call of the graph that the kernels were generated from, without what launches wrote; None if
            the run does not tell what it began with.
        states: what the calls overwrite, in order; of calls after the last of them, nothing is known.
        written: what launches of the last call wrote last, of the values that it returns, or returns views of.
        untouched: weights, buffers and inputs that no launch wrote, and that the graph does not overwrite either.
        seeds: of each call, the seeds of random numbers that were drawn in it.
    """

    calls: int
    returned: str = ""
    weights: tuple[RecordedWeight, ...] = ()
    last: ProgramRun | None = None
    states: tuple[CallStates, ...] = ()
    written: tuple[ProgramOutput, ...] = ()
    untouched: GivenTensors = GivenTensors()
    seeds: tuple[tuple[KnownValue, ...], ...] = ()


class ValueArithmetic(str, Enum):
    """The arithmetic of values that are saved."""

    EAGER = "eager"
    DOUBLE = "fp64"


@dataclass(frozen=True)
class WantedValues:
    """A region whose values are saved instead of being compared: what its launch should have written."""

    launch: str
    arithmetic: ValueArithmetic


@dataclass(frozen=True, kw_only=True)
class CompareRequest:
    """The request to evaluate regions, and the whole program.

    Attributes:
        package: the instrumented package, which holds the reference.
        device: "cpu" or "cuda".
        metric: "FILE.py:FUNCTION"; "" for none.
        traced: elements of outputs, one of a region, to be followed to the operator that made them non-finite; these
            regions are not measured.
        faulty: launches that failed; their regions are searched for the operand that an operator cannot use.
        imports, libraries: Python modules and shared libraries that register operators.
        torch_settings: those of the run (`torch_settings.capture`); None for those of the process.
        exported: the program that the package was built from, for its weights; "" if it is not known.
        exported_run: the calls of the exported program, for its states and outputs; None to make none.
        inputs: the inputs file of the run; "" for those embedded in the package.
        is_of_host: another program has called the model, with inputs of its own, which are not known as a whole.
        wanted: regions whose values are saved beside the request; these regions are not measured.
        outputs: also save what the programs return, beside the request.
    """

    package: str
    device: str
    regions: tuple[Region, ...]
    programs: tuple[ProgramRun, ...] = ()
    metric: str = ""
    traced: tuple[TracedElement, ...] = ()
    faulty: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    torch_settings: Mapping[str, Any] | None = None
    exported: str = ""
    exported_run: ExportedRun | None = None
    inputs: str = ""
    is_of_host: bool = False
    wanted: tuple[WantedValues, ...] = ()
    outputs: bool = False


@dataclass(frozen=True, kw_only=True)
class SaveRequest:
    """The request to save the tensors that a region begins and ends with, and to run the script once.

    Attributes:
        package: the instrumented package, which holds the graph.
        inputs: the names of the inputs of the region in the script, in their order.
        outputs: those of its outputs.
        folder: with the script; the tensors are written there.
    """

    package: str
    region: Region
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    device: str
    imports: tuple[str, ...]
    libraries: tuple[str, ...]
    folder: str


@dataclass(frozen=True, kw_only=True)
class InputTensor:
    """An input that was saved.

    Attributes:
        smallest, largest: of its elements, if they are integers.
        data: its elements in row-major order, base64; "" if it is too large for a text.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    smallest: int = 0
    largest: int = 0
    data: str = ""


@dataclass(frozen=True)
class Saved:
    """The answer.

    Attributes:
        refusal: why the tensors cannot be saved; "" if they were.
        inputs: what was saved, by name.
        versions: of what the script ran with: torch, Python, the device.
        lines: what the script printed.
        code: its exit code.
    """

    refusal: str = ""
    inputs: Mapping[str, InputTensor] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    code: int = 0
