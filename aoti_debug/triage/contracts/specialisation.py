"""What Triton kernels were compiled for against what they were given: divisible addresses and numbers, constants."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aoti_debug.errors import UsageError
from aoti_debug.manifest import CType, Kernel, Manifest
from aoti_debug.repro.triton_meta import Specialisation, specialisation
from aoti_debug.rundir.timeline import Grid, GridArgument, Launch
from aoti_debug.values import Number

DIVISOR = 16  # of "tt.divisibility"
_INTEGERS = frozenset({CType.I8, CType.I16, CType.I32, CType.I64, CType.U8, CType.U16, CType.U32, CType.U64})


@dataclass(frozen=True)
class Broken:
    """
    Attributes:
        parameter: the kernel's.
        argument: as the launch names it.
        what: a clause behind the kernel's name: "was compiled for …".
        evidence: what that leads to.
    """

    parameter: str
    argument: str
    what: str
    evidence: str


class Specialisations:
    """The kernels of a package, each read once."""

    def __init__(self, manifest: Manifest) -> None:
        self._kernels: Mapping[str, Kernel] = {k.name: k for k in manifest.kernels if k.language == "triton"}
        self._read: dict[str, Specialisation | None] = {}

    def broken(self, launch: Launch) -> Iterator[Broken]:
        for grid in launch.grids:
            found = self._of(grid.kernel)
            if found is not None:
                yield from _indivisible(launch, grid, found)
                yield from _other_constants(launch, found)
            yield from _narrowed(launch, grid)

    def _of(self, name: str) -> Specialisation | None:
        """None where the kernel's source does not say it."""
        if name not in self._read:
            kernel = self._kernels.get(name)
            try:
                self._read[name] = specialisation(kernel) if kernel is not None and kernel.source else None
            except UsageError:
                self._read[name] = None
        return self._read[name]


def _indivisible(launch: Launch, grid: Grid, compiled: Specialisation) -> Iterator[Broken]:
    for parameter, given in _by_parameter(grid, compiled).items():
        value = given.value.value
        if parameter not in compiled.divisible or not isinstance(value, int) or value % DIVISOR == 0:
            continue
        name = _argument(launch, parameter)
        if compiled.signature[parameter].startswith("*"):
            what = f"was compiled for multiples of {DIVISOR} as the address {parameter}: {name} is at 0x{value:x}"
            yield Broken(parameter, name, what, "it may load and store several elements at once: a misaligned address")
        else:
            what = f"was compiled for multiples of {DIVISOR} as {parameter}: it is {value}"
            yield Broken(parameter, name, what, "it may leave out the check of the last elements")


def _other_constants(launch: Launch, compiled: Specialisation) -> Iterator[Broken]:
    """A number that is compiled in reaches the launch nevertheless, and the kernel ignores it."""
    for argument in launch.args:
        constant = _literal(compiled.constants.get(argument.spec.param, ""))
        if constant is None or not isinstance(argument.before, Number) or argument.before.value == constant:
            continue
        what = f"was compiled for {argument.spec.param} = {constant}: it is {argument.before.value}"
        yield Broken(argument.spec.param, argument.name, what, f"it computes as if it were {constant}")


def _narrowed(launch: Launch, grid: Grid) -> Iterator[Broken]:
    """A number that does not fit the kernel's parameter."""
    passed = {value.name: value for value in grid.arguments if value.value.type in _INTEGERS}
    for argument in launch.args:
        given = argument.before
        got = passed.get(argument.spec.param)
        if (
            got is None
            or not isinstance(given, Number)
            or given.type not in _INTEGERS
            or got.value.value == given.value
        ):
            continue
        what = f"takes {argument.spec.param} as {got.ctype}: {given.value} becomes {got.value.value}"
        yield Broken(argument.spec.param, argument.name, what, "the number does not fit the kernel's parameter")


def _by_parameter(grid: Grid, compiled: Specialisation) -> dict[str, GridArgument]:
    """What the device was given for each parameter of the source, in the order of its signature."""
    passed = [name for name, kind in compiled.signature.items() if kind != "constexpr"]
    return dict(zip(passed, grid.arguments, strict=False))  # scratch memory follows


def _argument(launch: Launch, parameter: str) -> str:
    return next((a.name for a in launch.args if a.spec.param == parameter), parameter)


def _literal(source: str) -> int | float | None:
    try:
        value = ast.literal_eval(source)
    except (ValueError, SyntaxError):  # no number: a type, a name, nothing
        return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
