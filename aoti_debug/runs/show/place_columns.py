"""The columns of a table that say where in the model launches come from: model lines and paths of modules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from aoti_debug.base import terminal_cells
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.terminal_cells import Cell, Column
from aoti_debug.package.manifest import Provenance
from aoti_debug.package.origins import containing
from aoti_debug.runs.show import text

UNKNOWN = "-"
_LINE = Column("model line", min_width=12, share=1)
_MODULE = Column("module", min_width=14, share=2)
_BOTH = 140  # columns of a table that has room for both


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
        cells: list[str | Cell] = [text.model_line(provenance)]
        if len(self.columns) > 1:
            cells.append(ModuleCell(provenance.modules) if provenance.modules else UNKNOWN)
        return cells


def place_columns(provenances: Iterable[Provenance | None]) -> PlaceColumns:
    """The columns for launches of these origins; None for a row that is no launch."""
    origins = [origin for origin in provenances if origin is not None]
    modules = {origin.modules for origin in origins if origin.modules}
    if not modules:
        return PlaceColumns((_LINE,))
    lines = {text.model_line(origin) for origin in origins if origin.source}
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
