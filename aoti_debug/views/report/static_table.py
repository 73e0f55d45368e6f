"""Tables that a page holds as a whole: their cells are those of a terminal, and names are cut by the same rules."""

from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.terminal_cells import Cell, Column, Sentence

LONGEST = 60  # characters of a name; the style sheet cuts it shorter where the column is narrower


@dataclass(frozen=True)
class StaticCell:
    """A cell.

    Attributes:
        text: in full.
        shown: the text, or the name as far as it is shown.
        is_name: a name, which is cut rather than wrapped.
    """

    text: str
    shown: str
    is_name: bool


def static_rows(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]]) -> list[list[StaticCell]]:
    """The cells of rows: those of columns that a terminal narrows are names, unless they are sentences."""
    return [[_cell(column, cell) for column, cell in zip(columns, row, strict=True)] for row in rows]


def _cell(column: Column, cell: str | Cell) -> StaticCell:
    text = str(cell)
    if not column.share or isinstance(cell, Sentence):
        return StaticCell(text, text, is_name=False)
    return StaticCell(text, text if isinstance(cell, str) else cell.fit(LONGEST), is_name=True)
