"""The request to the process that computes the values of a start in eager, and the lines that it writes."""

from __future__ import annotations

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.protocol.request import InputTensor, Region
from aoti_debug.package.program_graphs import ValueKey

REFERENCE, REGION, VALUES = "reference.json", "region.json", "values.jsonl"  # in the folder of a start


@dataclass(frozen=True)
class EvaluateRequest:
    """The request to compute every value of a region, or of a whole program, in eager.

    Attributes:
        folder: for the values; of a whole program also its graph, and the region that is all of it.
        package: the instrumented package, which holds the graph of the region; "" for a program.
        region: None for the whole program.
        program: the exported program; "" for a region.
        inputs: the inputs file of the program; "" for its example inputs.
    """

    device: str
    imports: tuple[str, ...]
    libraries: tuple[str, ...]
    folder: str
    package: str = ""
    region: Region | None = None
    program: str = ""
    inputs: str = ""


@dataclass(frozen=True)
class EagerValue:
    """A value that was computed, or a node whose computation began.

    Attributes:
        node, after: its key; the last line of a process that came to its end has none.
        file: the name of its file; "" for a node whose computation began: it may end the process.
        is_random: the node draws random numbers, and was not computed.
        failure: the error of the node's own operator; "" if it raised none.
        tensor: its type, and its elements if these are few.
        literal: an expression of it, if its elements are very few.
        has_nan, has_infinity: True if an element is NaN, or infinite.
    """

    node: str
    after: str = ""
    file: str = ""
    is_random: bool = False
    failure: str = ""
    tensor: InputTensor | None = None
    literal: str = ""
    has_nan: bool = False
    has_infinity: bool = False

    @property
    def key(self) -> ValueKey:
        """The value of the graph."""
        return ValueKey(self.node, self.after)


END = EagerValue("")  # the last line of a process that has computed everything
