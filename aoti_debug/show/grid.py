"""Tables of plain text that fit into a number of columns, a line a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aoti_debug.show import cells

_GAP = 2


class Cell(Protocol):
    """Text that knows how to shorten itself."""

    def __str__(self) -> str:
        """In full."""

    def fit(self, width: int) -> str:
        """In at most `width` cells."""


@dataclass(frozen=True)
class Column:
    """
    Attributes:
        least: the column is not made narrower than this, if it has as much to show.
        share: how it takes part in what is left over; 0: it always has the room that it needs.
        right: its cells are aligned on the right.
        dropped_below: a table of fewer cells than this that has to shorten something goes without the column.
    """

    title: str
    least: int = 4
    share: int = 0
    right: bool = False
    dropped_below: int = 0


@dataclass(frozen=True)
class Table:
    """
    Attributes:
        lines: titles, a rule, and a line a row.
        dropped: the titles of columns that are left out.
        shortened: whether a cell is not shown in full.
    """

    lines: tuple[str, ...]
    dropped: tuple[str, ...]
    shortened: bool


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], width: int) -> Table:
    """The table with its titles, no line longer than `width` unless the columns' least widths are."""
    needed = _needed(columns, rows)
    dropped = {i for i, column in enumerate(columns) if width < column.dropped_below and _total(needed) > width}
    kept = [i for i in range(len(columns)) if i not in dropped]
    titles = tuple(columns[i].title for i in sorted(dropped))
    columns, needed = [columns[i] for i in kept], [needed[i] for i in kept]
    rows = [[row[i] for i in kept] for row in rows]
    widths = _widths(columns, needed, width)
    lines = [_line([column.title for column in columns], columns, widths)]
    lines.append(_line(["-" * n for n in widths], columns, widths))
    lines += [_line(row, columns, widths) for row in rows]
    return Table(tuple(lines), titles, widths != needed)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _needed(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]]) -> list[int]:
    return [
        max([len(column.title), *(cells.count(str(row[index])) for row in rows)])
        for index, column in enumerate(columns)
    ]


def _widths(columns: Sequence[Column], needed: Sequence[int], width: int) -> list[int]:
    widths = [n if not c.share else min(n, max(c.least, len(c.title))) for n, c in zip(needed, columns, strict=True)]
    left = width - _total(widths)
    while left > 0:
        hungry = [i for i, column in enumerate(columns) if column.share and widths[i] < needed[i]]
        if not hungry:
            break
        portion = max(left // sum(columns[i].share for i in hungry), 1)
        for index in hungry:
            more = min(portion * columns[index].share, needed[index] - widths[index], left)
            widths[index] += more
            left -= more
    return widths


def _line(row: Sequence[str | Cell], columns: Sequence[Column], widths: Sequence[int]) -> str:
    parts = [
        (cells.pad_left if column.right else cells.pad)(
            cells.middle_cut(cell, n) if isinstance(cell, str) else cell.fit(n), n
        )
        for cell, column, n in zip(row, columns, widths, strict=True)
    ]
    return (" " * _GAP).join(parts).rstrip()
