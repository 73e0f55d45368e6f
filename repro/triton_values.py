"""The values that a Triton kernel was launched with, as Python source."""

from __future__ import annotations

from aoti_debug.base.errors import UsageError
from aoti_debug.package.recording.values import Absent, Number
from aoti_debug.repro import c_numbers
from aoti_debug.repro.arguments import ReproArguments
from aoti_debug.repro.recorded_launch import RecordedLaunch, RecordedSlot

_CTYPES = {  # by what a Triton signature calls a type
    "i1": "c_int32",
    "i8": "c_int8",
    "i16": "c_int16",
    "i32": "c_int32",
    "i64": "c_int64",
    "u1": "c_uint32",
    "u8": "c_uint8",
    "u16": "c_uint16",
    "u32": "c_uint32",
    "u64": "c_uint64",
    "fp16": "c_float",
    "bf16": "c_float",
    "fp32": "c_float",
    "f32": "c_float",
    "fp64": "c_double",
}


def value_of(launch: RecordedLaunch, parameter: str, kind: str, arguments: ReproArguments) -> str:
    """Returns the value that a parameter was launched with, as Python source.

    Args:
        kind: Triton's name of its type.

    Raises:
        UsageError: it was not recorded, or is something that cannot be written down.
    """
    slot = next((s for s in launch.slots if s.arg.param == parameter), None)
    if kind.startswith("*"):
        return _pointer(launch, parameter, slot, arguments)
    if launch.grid is not None:
        passed = next((a for a in launch.grid.arguments if a.name == parameter), None)
        if passed is not None:
            return _number(launch, parameter, passed.ctype or kind, passed.value)
    elif slot is not None and isinstance(slot.value, Number):
        return _number(launch, parameter, kind, slot.value)
    is_descriptor = kind.startswith(("tensordesc", "nvTmaDesc"))
    what = "a TMA descriptor" if is_descriptor else f"of type {kind} and was not recorded"
    raise UsageError(f"launch {launch.id} cannot be replayed: its argument {parameter} is {what}")


def _pointer(launch: RecordedLaunch, parameter: str, slot: RecordedSlot | None, arguments: ReproArguments) -> str:
    if slot is not None and slot.tensor is not None:
        return arguments.names[slot.arg.name]
    if slot is not None and slot.value in (Absent.NULL, Absent.UNDEFINED):
        return "None"
    raise UsageError(f"launch {launch.id} cannot be replayed: its argument {parameter} was not recorded")


def _number(launch: RecordedLaunch, parameter: str, declared: str, given: Number) -> str:
    ctype = _CTYPES.get(declared) or c_numbers.CTYPES.get(declared)
    if ctype is None:
        raise UsageError(f"launch {launch.id} cannot be replayed: its argument {parameter} is passed as {declared}")
    return c_numbers.source(ctype, given.value)
