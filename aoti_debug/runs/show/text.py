"""Values, elements, layouts, statistics and model lines as text."""

from __future__ import annotations

from typing import Any

from aoti_debug.base import wording
from aoti_debug.package.manifest import Certainty, Provenance, Role
from aoti_debug.package.recording.values import Absent, Layout, Number, Tensor, Value
from aoti_debug.runs.rundir.formats import stored_tensor
from aoti_debug.runs.rundir.formats.statistics import Statistics


def decode(data: bytes, dtype: str) -> list[Any]:
    """The numbers in `data`: whole elements, row-major, little-endian.

    Raises:
        TypeError: the elements of the dtype cannot be read as numbers, or it is not known.
    """
    values: list[Any] = stored_tensor.numbers(data, dtype).tolist()
    return values


def format_element(value: Any, dtype: str) -> str:
    """The number with 12 digits for dtypes of double precision, 6 for others."""
    if isinstance(value, (bool, int)):
        return str(value)
    digits = 12 if dtype in ("float64", "complex128") else 6
    if isinstance(value, complex):
        return f"{value.real:.{digits}g}{value.imag:+.{digits}g}j"
    return f"{value:.{digits}g}"


ROLES = {Role.NONE: "", Role.IN: "in", Role.OUT: "out", Role.INOUT: "in-out", Role.UNKNOWN: "unknown"}


def shape(layout: Layout) -> str:
    """ "float32[8,32]"; the kind of layout where it is not strided."""
    if layout.kind != "strided":
        return f"{layout.dtype} {layout.kind}"
    return f"{layout.dtype}[{','.join(map(str, layout.shape))}]"


def value(value: Value) -> str:
    """ "float32[8,32] cpu", "42", "None"."""
    match value:
        case Tensor(layout=layout):
            return f"{shape(layout)} {layout.device}"
        case Number(value=number, type=type_):
            return f"{hex(number)}" if type_.name in ("ADDRESS", "HANDLE") and isinstance(number, int) else str(number)
        case Absent.NULL:
            return "None"
        case Absent.UNDEFINED:
            return "an undefined tensor"
        case Absent.UNSET:
            return "not set yet"
        case Absent.TEXT:
            return "text"
        case _:
            return "not recorded"


def statistics(s: Statistics) -> list[str]:
    """The statistics in words; counts of zero are left out."""
    if s.numel == 0:
        return ["empty"]
    words: list[str] = []
    if s.min is not None and s.max is not None:
        words += [f"min {wording.number(s.min)} at {s.min_index}", f"max {wording.number(s.max)} at {s.max_index}"]
        words += [f"mean {wording.number(s.mean)}", f"std {wording.number(s.std)}"]
    counts = {"NaN": s.n_nan, "+Inf": s.n_pos_inf, "-Inf": s.n_neg_inf, "zeros": s.n_zero}
    return words + [f"{name} {count}" for name, count in counts.items() if count]


def model_line(provenance: Provenance) -> str:
    """ "model.py:12"; "~" before one that is inferred, "-" where none is known."""
    if not provenance.source:
        return "-"
    frame = provenance.source[0]
    mark = "~" if provenance.certainty is Certainty.INFERRED else ""
    return f"{mark}{frame.file.rpartition('/')[2]}:{frame.line}"
