"""Values, elements, layouts, statistics and model lines as text; the columns of tables with model lines and modules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.terminal_cells import Cell, Column
from aoti_debug.package.argument_values import Absent, Layout, Number, Tensor, Value
from aoti_debug.package.manifest import Certainty, Provenance, Role
from aoti_debug.package.origins import containing
from aoti_debug.runs.rundir.argument_statistics import Measurer
from aoti_debug.runs.rundir.formats import stored_tensor
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.launch import Argument, Launch

UNKNOWN = "-"
_LINE = Column("model line", min_width=12, share=1)
_MODULE = Column("module", min_width=14, share=2)
_BOTH = 140  # columns of a table that has room for both


def phases(argument: Argument) -> tuple[Phase, ...]:
    """The phases to show by default: inputs before, outputs after, in-out arguments both."""
    if argument.role is Role.IN:
        return (Phase.BEFORE,)
    return (Phase.AFTER,) if argument.role is Role.OUT else (Phase.BEFORE, Phase.AFTER)


def largest_magnitude(launch: Launch, measurer: Measurer) -> str:
    """The largest magnitude of a launch, "41.9 in buf4"; NaN and infinities first: "3 NaN in buf4", "2 Inf in buf4".

    Written tensors come first; NaN and infinities that were only read are marked "(read)". The earlier contents of a
    written buffer do not count: they may be uninitialised. "-" where nothing was recorded.
    """
    written: list[tuple[str, Statistics]] = []
    read: list[tuple[str, Statistics]] = []
    for argument in launch.args:
        phase = Phase.BEFORE if argument.role is Role.IN else Phase.AFTER
        measured = measurer.measure(argument, phase).statistics
        if measured is not None:
            (written if phase is Phase.AFTER else read).append((argument.name, measured))
    for values, note in ((written, ""), (read, " (read)")):
        if bad := [(name, s) for name, s in values if s.n_nan]:
            name, s = max(bad, key=lambda item: item[1].n_nan)
            return f"{s.n_nan} NaN in {name}{note}"
        if bad := [(name, s) for name, s in values if s.n_pos_inf + s.n_neg_inf]:
            name, s = max(bad, key=lambda item: item[1].n_pos_inf + item[1].n_neg_inf)
            return f"{s.n_pos_inf + s.n_neg_inf} Inf in {name}{note}"
    finite = [(extreme, name) for name, s in written or read for extreme in (s.min, s.max) if extreme is not None]
    if not finite:
        return "-"
    value, name = max(finite, key=lambda item: abs(item[0]))
    return f"{value:.4g} in {name}"


def hash_text(launch: Launch) -> str:
    """The hash of the first tensor that a launch wrote, or if it wrote none, read: "#1f2e3d4c in buf4 and 1 more".

    "-" where none was recorded.
    """
    written: list[tuple[str, int]] = []
    read: list[tuple[str, int]] = []
    for argument in launch.args:
        phase = Phase.BEFORE if argument.role is Role.IN else Phase.AFTER
        recorded = argument.stats.get(phase)
        if recorded is not None and recorded.hash is not None:
            (written if phase is Phase.AFTER else read).append((argument.name, recorded.hash))
    hashes = written or read
    if not hashes:
        return "-"
    name, value = hashes[0]
    more = f" and {len(hashes) - 1} more" if len(hashes) > 1 else ""
    return f"{short_hash(value)} in {name}{more}"


def short_hash(value: int) -> str:
    """The first half of a hash: "#1f2e3d4c"."""
    return f"#{value:016x}"[:9]


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


def labelled(label: str, sentence: str, width: int, column: int) -> list[str]:
    """A sentence behind its label, in lines of at most `width` columns.

    Args:
        column: in which the lines of the sentence begin.
    """
    indent = " " * column
    first, *rest = terminal_cells.wrapped(sentence, width, indent) or [indent]
    return [f"  {label:<{column - 2}}{first[column:]}", *rest]


@dataclass(frozen=True)
class PlaceColumns:
    """The columns for some launches.

    Where several launches come from one line (a block of which the model has many), the module differs: then a narrow
    table leaves out the line, else the module.

    Attributes:
        columns: model line and module; the model line alone where no module is known.
    """

    columns: tuple[Column, ...]

    def cells(self, provenance: Provenance | None) -> list[str | Cell]:
        """The cells of a launch under these columns; blank without an origin: a row that is no launch."""
        if provenance is None:
            return [""] * len(self.columns)
        cells: list[str | Cell] = [model_line(provenance)]
        if len(self.columns) > 1:
            cells.append(ModuleCell(provenance.modules) if provenance.modules else UNKNOWN)
        return cells


def place_columns(provenances: Iterable[Provenance | None]) -> PlaceColumns:
    """The columns for launches of these origins; None for a row that is no launch."""
    origins = [origin for origin in provenances if origin is not None]
    modules = {origin.modules for origin in origins if origin.modules}
    if not modules:
        return PlaceColumns((_LINE,))
    lines = {model_line(origin) for origin in origins if origin.source}
    if len(modules) > len(lines):
        return PlaceColumns((replace(_LINE, dropped_below=_BOTH), _MODULE))
    return PlaceColumns((_LINE, replace(_MODULE, dropped_below=_BOTH)))


@dataclass(frozen=True)
class ModuleCell:
    """The paths of the modules that a launch computes.

    Attributes:
        paths: at least one, in the order of the program.
    """

    paths: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.paths)

    def fit(self, width: int) -> str:
        """At most `width` cells: one module, and the number of the others."""
        if terminal_cells.count(str(self)) <= width:
            return str(self)
        more = f" +{len(self.paths) - 1}" if len(self.paths) > 1 else ""
        return short_path(_main(self.paths), width - len(more)) + more


def _main(paths: Sequence[str]) -> str:
    """The module that contains all the others; if none does, the last one."""
    around_all = (path for path in paths if all(path in containing(other) for other in paths))
    return next(around_all, paths[-1])


def short_path(path: str, width: int) -> str:
    """The path of a module in at most `width` cells: "…layers.0.mlp.up_proj".

    It loses its beginning, then the middles of names, of the last one last; the last number, which tells a block from
    its twins, stays.
    """
    if terminal_cells.count(path) <= width:
        return path
    parts = path.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdecimal()]
    kept = numbers[-1] if numbers else len(parts) - 1
    for first in range(1, kept + 1):
        tail = f"…{'.'.join(parts[first:])}"
        if terminal_cells.count(tail) <= width:
            return tail
    *names, last = parts[kept:]
    begin = "…" if kept else ""
    for shown in (last, None):
        for limit in range(max(map(len, (*names, last))), 2, -1):
            shortened = [terminal_cells.shorten_middle(name, limit) for name in names]
            tail = begin + ".".join((*shortened, shown or terminal_cells.shorten_middle(last, limit)))
            if terminal_cells.count(tail) <= width:
                return tail
    return terminal_cells.shorten_middle(path, width)
