"""The measured differences between what a launch wrote and what the program says, as plain data."""

from __future__ import annotations

from enum import Enum

from aoti_debug.base.frozen import dataclass

LARGEST = 1e300  # stands for any larger number
SMALLEST = 1e-300  # a divisor in place of zero
OF_ZERO = 1e200  # a relative error as large is of something that should be zero
EXPLAINED = 0.5  # the part of an error that a cause has to make up; where numbers cancel, float64 rounds, too
LEAST = 1e-6  # a relative difference of two evaluations in float64; rounding makes far less


MAX_ROWS, MAX_COLUMNS = 48, 64  # cells of a map
SMALLEST_BIN, LARGEST_BIN = (
    -2,
    40,
)  # exponents of two: the histogram's bins of ULP, smaller and larger errors at its ends
MAX_RANGES = 8  # of indices, in one dimension


@dataclass(frozen=True, kw_only=True)
class ErrorSpread:
    """The distribution of an output's errors.

    Attributes:
        ulp: the number of elements by their error in ULP: those without any, those up to 2^SMALLEST_BIN, and in each
            further bin those up to twice as much; () for integers and booleans.
        misplaced: NaN and infinities that stand where none should, and numbers that stand where one should.
        rows, columns: the size of the map.
        map: the largest error in each cell, as a multiple of what is allowed there, row-major. The cells divide the
            last two dimensions evenly; the errors of all other dimensions lie on top of each other.
        ranges: for each dimension the first and last index of each range of indices that have wrong elements; of more
            than MAX_RANGES, the first index of the first one and the last of the last one.
    """

    ulp: tuple[int, ...]
    misplaced: int
    rows: int
    columns: int
    map: tuple[float, ...]
    ranges: tuple[tuple[tuple[int, int], ...], ...]


# Folders beside the request: what the exported program returns.
EXPORTED_EAGER, EXPORTED_DOUBLE = "exported_outputs", "exported_outputs_float64"

NOT_REPEATABLE = (
    "evaluated again in eager, with NaN in memory that it has not written yet, it gives something else: it is not "
    "deterministic, or uses such memory"
)


@dataclass(frozen=True)
class Element:
    """The element of an output that differs most, compared with what is allowed there.

    Attributes:
        index: its row-major index.
        actual, expected, eager: its values as text: as recorded, in float64, in the program's own dtypes.
    """

    index: int
    actual: str
    expected: str
    eager: str


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The differences of one output from its reference in float64.

    Errors are absolute differences; a ULP is the distance between neighbouring numbers of the output's dtype there.

    Attributes:
        argument: its name in the launch: "buf4".
        value: the value of the graph that it holds: "addmm".
        operator: the operator that computes this value: "aten.addmm.default".
        count: the number of elements.
        wrong: the number of elements that differ by more than what is allowed there.
        excess: the largest error, as a multiple of what is allowed there; 0 without any error.
        worst: the element with this error; None if all are equal.
        bias: the mean error in ULP, away from zero, if it is what makes the output wrong; else 0.
        equals_eager: True if it is equal to what eager computes, bit for bit but for signs of zero and of NaN.
        ulp_median, ulp_max: of the errors, in ULP, over finite elements.
        atol, rtol: the largest absolute and relative error: what a comparison by one of them alone would need.
        rms, eager_rms: root of the mean squared error, of the output and of eager.
        relative: `rms`, divided by the root of the mean square of the expected values.
        relative_ulp: `relative`, in relative distances of neighbouring numbers of the dtype.
        eager_ulp_max: the largest error of eager in ULP.
        sensitivity: an estimate of the condition number: the relative change of the output divided by that of the
            inputs, when these change by one ULP; of integers, the number of elements that change; -1 if it was not
            needed.
        decided: of integers and booleans, the number of elements that are eager's, and in float64 would be others:
            rounding decides about them.
        misplaced: the number of elements that are NaN or infinite otherwise than eager's.
        lost, eager_lost: the number of elements, of the output and of eager, that are so otherwise than in float64.
        metric: the value of the user's metric; None without one.
        spread: the distribution of its errors, if elements are wrong; None for others, and after the first few.
    """

    argument: str
    value: str
    operator: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    wrong: int = 0
    excess: float = 0.0
    worst: Element | None = None
    bias: float = 0.0
    equals_eager: bool = False
    ulp_median: float = 0.0
    ulp_max: float = 0.0
    atol: float = 0.0
    rtol: float = 0.0
    rms: float = 0.0
    relative: float = 0.0
    relative_ulp: float = 0.0
    eager_rms: float = 0.0
    eager_ulp_max: float = 0.0
    decided: int = 0
    sensitivity: float = -1.0
    metric: float | None = None
    spread: ErrorSpread | None = None
    misplaced: int = 0
    lost: int = 0
    eager_lost: int = 0


@dataclass(frozen=True)
class Explanation:
    """An operator that, computed wrongly, explains what a launch wrote.

    Attributes:
        how: "with its operands swapped".
        left: the part of the error that is left.
        is_partial: only the elements that are wrong were looked at: the others are right without it.
    """

    node: str
    how: str
    left: float
    is_partial: bool = False


@dataclass(frozen=True, kw_only=True)
class RegionResult:
    """The measurements of one region.

    Attributes:
        launch: the launch that writes its outputs.
        failure: why it could not be evaluated; "" if it was.
        notes: what limits the comparison: "aten.x.default computed in bfloat16: not implemented for 'Double'".
        seconds: the time that it took.
        explanations: of the first region with a wrong output, the best ones first.
        begins: where an output has misplaced elements, the first node whose result is finite otherwise in eager than in
            float64; where eager rounds one otherwise, the node whose rounding makes most of that difference. "" if none
            does, and after the first such region.
        share: the part of the difference that this rounding makes.
    """

    launch: str
    outputs: tuple[Measurement, ...] = ()
    failure: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    explanations: tuple[Explanation, ...] = ()
    begins: str = ""
    share: float = 0.0


@dataclass(frozen=True)
class Inherited:
    """The difference of an output from the whole program, run in eager from the model's inputs.

    Attributes:
        relative: root of the mean squared difference, divided by the root of the mean square of the expected values.
    """

    launch: str
    argument: str
    relative: float


class Advance(str, Enum):
    """The way in which a state of the model has changed in a call."""

    RIGHT = "as the program says"
    NOT_AT_ALL = "not at all"
    UNTOUCHED = "no launch reads or writes it"
    TWICE = "twice"
    OTHERWISE = "otherwise"
    OTHER_BEGIN = "from another value"


@dataclass(frozen=True, kw_only=True)
class StateChange:
    """The change of a state of the model in a call, against the program run in eager from the same state.

    A weight that the run began with another value of than the program is one, too (OTHER_BEGIN).

    Attributes:
        name: the attribute of the model, "cache"; "input 0".
        launch: the last launch that wrote it; "" if none did.
        change: the largest change of an element in the program; None if its value is not known.
        difference: the largest difference of an element after the call; None likewise.
        misplaced: the number of elements that are NaN or infinite otherwise than in the program; not in the other two.
    """

    name: str
    call: int
    launch: str
    advance: Advance
    change: float | None = None
    difference: float | None = None
    misplaced: int = 0


@dataclass(frozen=True)
class ProgramFailure:
    """The reason why the whole program could not be evaluated."""

    reason: str


@dataclass(frozen=True)
class StatesFailure:
    """The reason why states and outputs were not compared with those of the exported program."""

    reason: str


@dataclass(frozen=True)
class SavedValue:
    """A file with what a launch should have written, in the dtype and shape that it was recorded with.

    Attributes:
        argument: its name in the launch: "buf4".
    """

    launch: str
    argument: str
    path: str


@dataclass(frozen=True)
class SavedOutput:
    """A file with what the program returns.

    Attributes:
        call: the number of the call.
        index: among the outputs of the graph, from 0.
    """

    call: int
    index: int
    path: str


@dataclass(frozen=True)
class ExportedOutputs:
    """Folders with what the exported program returns in the last call; files: `aoti_debug.runs.run.saved_outputs`.

    Attributes:
        eager: in the program's own dtypes.
        double: in float64; "" where rounding explains what the run returned, or it could not be computed.
    """

    eager: str
    double: str = ""


@dataclass(frozen=True, kw_only=True)
class AlteredOutput:
    """A wrong output, and the part of its error that the graph makes which the kernels were generated from.

    Attributes:
        index: among what the model returns, from 0.
        elements: the number of its elements that were looked at: those that rounding does not explain.
        relative: the relative difference of these elements between the two graphs, both in float64.
        explained: the part of their error that this difference makes up.
        least: the relative difference from which on rounding does not explain it.
        shape: of the output.
        worst: the one of them that is farthest off.
    """

    index: int
    elements: int
    relative: float
    explained: float
    least: float
    shape: tuple[int, ...] = ()
    worst: Element | None = None


@dataclass(frozen=True, kw_only=True)
class AlteredProgram:
    """The change that Inductor's decompositions and passes have made to a program whose outputs are wrong.

    Attributes:
        relative: the relative difference of the output of the graph that kernels were generated from that explains
            most, both in float64; -1 if it could not be computed.
        explained: the part of that output's error that this difference makes up; 0 if it could not be computed.
        least: the relative difference from which on rounding does not explain it.
        is_rounded: True if an operator has no float64, or integers differ by 1 at most: rounding may be the difference.
        lost: the nodes of the exported program before which all values are in that graph, while their own are not;
            behind them what they read that is there only with other signs of zeros, or in another order.
        lost_signs: those of them whose values are in that graph but for the signs of zeros.
        lost_order: those of them whose numbers are in that graph, but not in their order.
        kept: the nodes of the exported program that wrong outputs are, and whose values that graph has: it returns
            something else.
        outputs: the wrong outputs.
    """

    relative: float
    explained: float = 0.0
    least: float = LEAST
    is_rounded: bool = False
    lost: tuple[str, ...] = ()
    lost_signs: tuple[str, ...] = ()
    lost_order: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    outputs: tuple[AlteredOutput, ...] = ()


@dataclass(frozen=True)
class FaultyOutput:
    """An output that is wrong beyond any rounding.

    Attributes:
        index: among what the model returns, from 0.
        fault: as a predicate: "is not what launch 0.3 wrote for it, as buf4".
    """

    index: int
    fault: str


UNWRITTEN = "gives memory that is read before it is written"  # of an operator


@dataclass(frozen=True)
class UndefinedResult:
    """An operator of the exported program that does what its graph does not say, as it was seen in eager.

    Attributes:
        node: of the exported program's graph.
        seen: as a predicate of the operator: "overwrites its argument x, which its schema does not declare".
        outputs: the numbers of the outputs that were seen to depend on it; () where that was not tried.
    """

    node: str
    seen: str
    outputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class InexactResult:
    """An operator of the exported program whose result in eager is not the exact one of its operands.

    Attributes:
        node: of the exported program's graph.
        seen: as a predicate of the operator: "converts 3 of 40 elements that int32 cannot hold exactly (…)".
        is_open: the exact result is another one, or there is none.
    """

    node: str
    seen: str
    is_open: bool


@dataclass(frozen=True)
class OutputNoise:
    """The distance that a wrong output moves when every operator rounds otherwise.

    Attributes:
        index: among what the model returns, from 0.
        moved: the largest relative difference of four evaluations in float64, root mean square.
    """

    index: int
    moved: float


@dataclass(frozen=True)
class PeakMemory:
    """The largest resident size that the evaluating process had, in bytes."""

    bytes: int
