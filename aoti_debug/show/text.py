"""How values are spelled."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence

from aoti_debug.manifest import Certainty, Provenance, Role
from aoti_debug.rundir.statistics import Statistics
from aoti_debug.values import Absent, Layout, Number, Tensor, Value

ROLES = {Role.NONE: "", Role.IN: "in", Role.OUT: "out", Role.INOUT: "in-out", Role.UNKNOWN: "unknown"}


def shape(layout: Layout) -> str:
    """ "float32[8,32]"; the kind of layout where it is not strided."""
    if layout.kind != "strided":
        return f"{layout.dtype} {layout.kind}"
    return f"{layout.dtype}[{','.join(map(str, layout.shape))}]"


def value(found: Value) -> str:
    match found:
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


def real(number: float) -> str:
    """Six digits; integers in full."""
    return str(number) if isinstance(number, int) else f"{number:.6g}"


def statistics(s: Statistics) -> list[str]:
    """Words; counts of zero are left out."""
    if s.numel == 0:
        return ["empty"]
    words: list[str] = []
    if s.min is not None and s.max is not None:
        words += [f"min {real(s.min)} at {s.min_index}", f"max {real(s.max)} at {s.max_index}"]
        words += [f"mean {real(s.mean)}", f"std {real(s.std)}"]
    counts = {"NaN": s.n_nan, "+Inf": s.n_pos_inf, "-Inf": s.n_neg_inf, "zeros": s.n_zero}
    return words + [f"{name} {count}" for name, count in counts.items() if count]


def model_line(provenance: Provenance) -> str:
    """ "model.py:12"; "~" before one that is inferred, "-" where none is known."""
    if not provenance.source:
        return "-"
    frame = provenance.source[0]
    mark = "~" if provenance.certainty is Certainty.INFERRED else ""
    return f"{mark}{frame.file.rpartition('/')[2]}:{frame.line}"


def size(count: float) -> str:
    """Bytes, in powers of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def seconds(duration: float) -> str:
    if duration < 0.001:
        return f"{duration * 1e6:.1f} µs"
    if duration < 1:
        return f"{duration * 1e3:.3g} ms"
    return f"{duration:.1f} s" if duration < 60 else f"{math.floor(duration / 60)} min {duration % 60:.0f} s"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def article(noun: str) -> str:
    """ "a compiled package", "an exported program"."""
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def flowed(words: Iterable[str], width: int, indent: str = "", gap: str = "  ", hang: str = "") -> list[str]:
    """Lines of at most `width` columns. A word that is longer has a line of its own.

    Args:
        hang: what every line but the first is indented by on top.
    """
    lines: list[str] = []
    line = ""
    for word in words:
        if line and len(line) + len(gap) + len(word) > width:
            lines.append(line.rstrip())
            line = indent + hang + word
        else:
            line = f"{line}{gap}{word}" if line else indent + word
    return [*lines, line.rstrip()] if line else lines


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """A sentence in lines of at most `width` columns."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def first_line(message: str) -> str:
    """The first line that says something, of a message that may end in a traceback; at most 300 characters."""
    said = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return said if len(said) <= 300 else f"{said[:299]}…"


def middle_cut(name: str, width: int) -> str:
    """Cut in its middle where it is longer: both ends tell names apart."""
    if len(name) <= width:
        return name
    half = (width - 1) // 2
    return f"{name[: width - 1 - half]}…{name[len(name) - half :] if half else ''}"


def names(found: Sequence[str]) -> str:
    return ", ".join(found) or "none"
