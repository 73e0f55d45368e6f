"""Tables of plain text that fit into a number of columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aoti_debug.wording import middle_cut

_GAP = 2


@dataclass(frozen=True)
class Column:
    """
    Attributes:
        least: the column is not made narrower than this, if it has as much to show.
        share: how it takes part in what is left over; 0: it always has the room that it needs.
        folds: a cell that is too long goes on in the next line; otherwise its middle is cut out.
        breaks_after: characters after which a cell that folds is broken: the last one of the first of these texts that
            has one within the line; where none has, the line is filled.
    """

    title: str
    least: int = 4
    share: int = 0
    folds: bool = False
    breaks_after: tuple[str, ...] = (" ",)


def lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The table with its titles, no line longer than `width` unless the columns' least widths are."""
    widths = _widths(columns, rows, width)
    out = _row([column.title for column in columns], columns, widths)
    out += _row(["-" * n for n in widths], columns, widths)
    for row in rows:
        out += _row(row, columns, widths)
    return out


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    needed = [max([len(column.title), *(len(row[index]) for row in rows)]) for index, column in enumerate(columns)]
    widths = [n if not c.share else min(n, max(c.least, len(c.title))) for n, c in zip(needed, columns, strict=True)]
    left = width - sum(widths) - _GAP * (len(columns) - 1)
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


def _row(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    parts = [
        list(_fold(cell, n, column.breaks_after)) if column.folds else [middle_cut(cell, n)]
        for cell, column, n in zip(cells, columns, widths, strict=True)
    ]
    height = max(len(part) for part in parts)
    return [
        (" " * _GAP)
        .join((part[i] if i < len(part) else "").ljust(n) for part, n in zip(parts, widths, strict=True))
        .rstrip()
        for i in range(height)
    ]


def _fold(cell: str, width: int, breaks_after: Sequence[str]) -> Iterable[str]:
    while len(cell) > width:
        cut = next((found for marks in breaks_after if (found := _last(cell, width, marks))), width)
        yield cell[:cut].rstrip()
        cell = cell[cut:].lstrip(" ")
    yield cell


def _last(cell: str, width: int, marks: str) -> int:
    """Where the line ends after the last of the marks; 0 without one. A space takes no room at the end of a line."""
    return max(cell.rfind(mark, 0, width + (mark == " ")) for mark in marks) + 1
