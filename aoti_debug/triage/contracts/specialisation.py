"""Checks the arguments of Triton kernels against what they were compiled for: divisibility and constants."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import CType, Kernel, Manifest
from aoti_debug.repro.triton_source import Specialisation, specialisation
from aoti_debug.runs.rundir.launch import Grid, GridArgument, Launch

DIVISOR = 16  # of "tt.divisibility"
_INTEGERS = frozenset({CType.I8, CType.I16, CType.I32, CType.I64, CType.U8, CType.U16, CType.U32, CType.U64})


@dataclass(frozen=True)
class BrokenAssumption:
    """An assumption of a compiled kernel that a launch breaks.

    Attributes:
        parameter: the kernel's parameter.
        argument: the launch's argument.
        what: the problem, as the predicate of the kernel: "was compiled for …".
        evidence: the consequence.
    """

    parameter: str
    argument: str
    what: str
    evidence: str


class Specialisations:
    """The specialisations of a package's Triton kernels, each read once."""

    def __init__(self, manifest: Manifest) -> None:
        self._kernels: Mapping[str, Kernel] = {k.name: k for k in manifest.kernels if k.language == "triton"}
        self._read: dict[str, Specialisation | None] = {}

    def broken_assumptions(self, launch: Launch) -> Iterator[BrokenAssumption]:
        """The assumptions of its kernels that a launch breaks."""
        for grid in launch.grids:
            compiled = self._specialisation(grid.kernel)
            if compiled is not None:
                yield from _indivisible_values(launch, grid, compiled)
                yield from _other_constants(launch, compiled)
            yield from _truncated_numbers(launch, grid)

    def _specialisation(self, name: str) -> Specialisation | None:
        """The specialisation of a kernel; None if its source does not contain it."""
        if name not in self._read:
            kernel = self._kernels.get(name)
            try:
                self._read[name] = specialisation(kernel) if kernel is not None and kernel.source else None
            except UsageError:
                self._read[name] = None
        return self._read[name]


def _indivisible_values(launch: Launch, grid: Grid, compiled: Specialisation) -> Iterator[BrokenAssumption]:
    for parameter, argument in _by_parameter(grid, compiled).items():
        value = argument.value.value
        if parameter not in compiled.divisible or not isinstance(value, int) or value % DIVISOR == 0:
            continue
        name = _argument_name(launch, parameter)
        if compiled.signature[parameter].startswith("*"):
            what = f"was compiled for an address {parameter} divisible by {DIVISOR}, but {name} is at 0x{value:x}"
            yield BrokenAssumption(
                parameter, name, what, "its vectorized loads and stores may fail with a misaligned address"
            )
        else:
            what = f"was compiled for {parameter} divisible by {DIVISOR}, but it is {value}"
            yield BrokenAssumption(parameter, name, what, "it may omit the bounds check of the last elements")


def _other_constants(launch: Launch, compiled: Specialisation) -> Iterator[BrokenAssumption]:
    """Numbers that differ from a constant compiled into the kernel, which ignores what it is passed."""
    for argument in launch.args:
        constant = _literal(compiled.constants.get(argument.spec.param, ""))
        if constant is None or not isinstance(argument.before, Number) or argument.before.value == constant:
            continue
        what = f"was compiled for {argument.spec.param} = {constant}, but it is {argument.before.value}"
        yield BrokenAssumption(argument.spec.param, argument.name, what, f"it computes as if it were {constant}")


def _truncated_numbers(launch: Launch, grid: Grid) -> Iterator[BrokenAssumption]:
    """Numbers that do not fit the type of the kernel's parameter."""
    passed = {value.name: value for value in grid.arguments if value.value.type in _INTEGERS}
    for argument in launch.args:
        number = argument.before
        received = passed.get(argument.spec.param)
        if (
            received is None
            or not isinstance(number, Number)
            or number.type not in _INTEGERS
            or received.value.value == number.value
        ):
            continue
        what = f"takes {argument.spec.param} as {received.ctype}: {number.value} becomes {received.value.value}"
        yield BrokenAssumption(
            argument.spec.param, argument.name, what, "the number does not fit the kernel's parameter"
        )


def _by_parameter(grid: Grid, compiled: Specialisation) -> dict[str, GridArgument]:
    """The value that the device got for each parameter of the source, in the order of its signature."""
    passed = [name for name, kind in compiled.signature.items() if kind != "constexpr"]
    return dict(zip(passed, grid.arguments, strict=False))  # scratch memory follows


def _argument_name(launch: Launch, parameter: str) -> str:
    return next((a.name for a in launch.args if a.spec.param == parameter), parameter)


def _literal(source: str) -> int | float | None:
    try:
        value = ast.literal_eval(source)
    except (ValueError, SyntaxError):  # no number: a type, a name, nothing
        return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
