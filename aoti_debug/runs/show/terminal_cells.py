"""Text measured in terminal cells, a wide character two and a combining one none; and tables that fit into a width."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from typing import Protocol

from aoti_debug.base.frozen import dataclass

UNLIMITED = sys.maxsize  # width of an output that is not a terminal: nothing is wrapped or shortened


def count(text: str) -> int:
    """The number of cells that a text takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def pad(text: str, width: int) -> str:
    """The text padded with spaces on the right."""
    return text + " " * (width - count(text))


def pad_left(text: str, width: int) -> str:
    """The text padded with spaces on the left."""
    return " " * (width - count(text)) + text


def shorten_middle(name: str, width: int) -> str:
    """The name, its middle replaced by "…" if it is longer: names differ at either end."""
    if count(name) <= width:
        return name
    half = (width - 1) // 2
    return f"{_prefix(name, width - 1 - half)}…{_prefix(name[::-1], half)[::-1]}"


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _prefix(text: str, width: int) -> str:
    """The first characters, as many as fit."""
    end = 0
    for character in text:
        width -= _cells(character)
        if width < 0:
            break
        end += 1
    return text[:end]


_GAP = 2


class Cell(Protocol):
    """Text that can shorten itself to a width."""

    def __str__(self) -> str:
        """The text in full."""

    def fit(self, width: int) -> str:
        """The text in at most `width` cells."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        min_width: the column is not made narrower than this, unless its cells are.
        share: its weight when spare width is distributed; 0: the column is never narrowed.
        align_right: its cells are aligned on the right.
        dropped_below: the column is left out of a table narrower than this if something has to be shortened.
    """

    title: str
    min_width: int = 4
    share: int = 0
    align_right: bool = False
    dropped_below: int = 0


@dataclass(frozen=True)
class TextTable:
    """A rendered table.

    Attributes:
        lines: titles, a rule, and one line for each row.
        dropped: the titles of columns that are left out.
        shortened: True if a cell is not shown in full.
    """

    lines: tuple[str, ...]
    dropped: tuple[str, ...]
    shortened: bool


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], width: int) -> TextTable:
    """Renders a table; no line is longer than `width` unless the minimum widths of the columns need it."""
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
    return TextTable(tuple(lines), titles, widths != needed)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _needed(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]]) -> list[int]:
    return [max([len(column.title), *(count(str(row[index])) for row in rows)]) for index, column in enumerate(columns)]


def _widths(columns: Sequence[Column], needed: Sequence[int], width: int) -> list[int]:
    widths = [
        n if not c.share else min(n, max(c.min_width, len(c.title))) for n, c in zip(needed, columns, strict=True)
    ]
    spare = width - _total(widths)
    while spare > 0:
        narrowed = [i for i, column in enumerate(columns) if column.share and widths[i] < needed[i]]
        if not narrowed:
            break
        portion = max(spare // sum(columns[i].share for i in narrowed), 1)
        for index in narrowed:
            more = min(portion * columns[index].share, needed[index] - widths[index], spare)
            widths[index] += more
            spare -= more
    return widths


def _line(row: Sequence[str | Cell], columns: Sequence[Column], widths: Sequence[int]) -> str:
    parts = [
        (pad_left if column.align_right else pad)(shorten_middle(cell, n) if isinstance(cell, str) else cell.fit(n), n)
        for cell, column, n in zip(row, columns, widths, strict=True)
    ]
    return (" " * _GAP).join(parts).rstrip()
