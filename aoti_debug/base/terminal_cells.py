"""Text measured in terminal cells, a wide character two and a combining one none: cut, wrapped, or in a table.

This is the one place that decides how text is fitted into a width: names lose their middle, sentences are wrapped
between words, and a command goes on behind a backslash.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Protocol

from aoti_debug.base.frozen import dataclass

UNLIMITED = sys.maxsize  # width with which nothing is wrapped or shortened


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


def wrap_words(words: Iterable[str], width: int, indent: str = "", gap: str = "  ", hang: str = "") -> list[str]:
    """Words in lines of at most `width` cells; a longer word is on a line of its own.

    Args:
        hang: the additional indent of every line but the first.
    """
    lines: list[str] = []
    line = ""
    for word in words:
        if line and count(line) + len(gap) + count(word) > width:
            lines.append(line.rstrip())
            line = indent + hang + word
        else:
            line = f"{line}{gap}{word}" if line else indent + word
    return [*lines, line.rstrip()] if line else lines


def wrapped(text: str, width: int, indent: str = "", hang: str = "", end: str = "") -> list[str]:
    """A sentence in lines of at most `width` cells, broken between words.

    A word that has no room behind the indent, as a path, gets a line of its own with as much of it as fits.

    Args:
        hang: the additional indent of every line but the first.
        end: the end of every line but the last: " \\" of a command.
    """
    lines: list[str] = []
    line, cells = "", 0
    for gap, word in _WORDS.findall(text):
        needed = len(gap) + count(word) if line else count(word)
        if line and cells + needed > width - len(end):
            lines.append(f"{line}{end}")
            line, cells = "", 0
        if line:
            line, cells = f"{line}{' ' * len(gap)}{word}", cells + needed
        else:
            before = f"{indent}{hang if lines else ' ' * len(gap)}"
            line = f"{before[: max(width - count(word), 0)]}{word}"
            cells = count(line)
    return [*lines, line] if line else lines


_WORDS = re.compile(r"(\s*)(\S+)")
_LABEL = re.compile(r" *(?:\S+(?: \S+)? {2,}|(?:error|hint|next|note|warning): |(?:operator|shown by) )?")
_COMMAND = re.compile(r" *next(?:: | {2,})(?:aoti-debug|python) ")
_HANG = 2
_WIDEST_LABEL = 16


def fitted(line: str, width: int) -> list[str]:
    """A line in as many as it needs: the others hang under the text behind its label, or two cells further in.

    A command that is to be copied goes on behind a backslash. A word that is longer than a line stays whole.
    """
    if count(line) <= width:
        return [line]
    label = _LABEL.match(line)
    hang = label.end() if label is not None else 0
    indent = len(line) - len(line.lstrip(" "))
    if not indent < hang <= _WIDEST_LABEL:
        hang = indent + _HANG
    return wrapped(line[indent:], width, line[:indent], " " * (hang - indent), " \\" if _COMMAND.match(line) else "")


_GAP = 2
_NARROWEST = 6  # cells of a column, where a table has no room for its minimum widths


class Cell(Protocol):
    """Text that can shorten itself to a width."""

    def __str__(self) -> str:
        """The text in full."""

    def fit(self, width: int) -> str:
        """The text in at most `width` cells."""


@dataclass(frozen=True)
class Sentence:
    """A cell of words: it loses whole words at its end."""

    text: str

    def __str__(self) -> str:
        return self.text

    def fit(self, width: int) -> str:
        """The first words that fit, and "…" for the others."""
        if count(self.text) <= width:
            return self.text
        words = self.text.split()
        beginnings = (" ".join(words[:end]).rstrip(",;:") for end in range(len(words) - 1, 0, -1))
        first = next((text for text in beginnings if count(text) <= width - 2), None)
        return shorten_middle(words[0], width) if first is None else f"{first} …"


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

    def lines_and_hidden(self, width: int, option: str = "--wide") -> list[str]:
        """The lines, and a sentence of at most `width` columns a line on what is not shown.

        Args:
            option: shows it.
        """
        hidden = ["names are shortened"] if self.shortened else []
        if self.dropped:
            *others, last = self.dropped
            verb = "are" if others or last.endswith("s") else "is"
            hidden.append(f"{', '.join(others)}{' and ' if others else ''}{last} {verb} left out")
        return [*self.lines, *(wrapped(f"{', '.join(hidden)}; {option} shows everything", width) if hidden else ())]


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], width: int) -> TextTable:
    """Renders a table; no line is longer than `width` unless columns that are never narrowed need it."""
    needed = _needed(columns, rows)
    dropped = {i for i, column in enumerate(columns) if width < column.dropped_below and _total(needed) > width}
    kept = [i for i in range(len(columns)) if i not in dropped]
    titles = tuple(columns[i].title for i in sorted(dropped))
    columns, needed = [columns[i] for i in kept], [needed[i] for i in kept]
    rows = [[row[i] for i in kept] for row in rows]
    widths = _narrowed(columns, _widths(columns, needed, width), width)
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


def _narrowed(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Widths for a table that has no room for its minimum widths: the widest columns lose what is missing."""
    narrowed = list(widths)
    shared = [i for i, column in enumerate(columns) if column.share]
    while _total(narrowed) > width and shared:
        widest = max(shared, key=narrowed.__getitem__)
        if narrowed[widest] <= _NARROWEST:
            break
        narrowed[widest] -= 1
    return narrowed


def _line(row: Sequence[str | Cell], columns: Sequence[Column], widths: Sequence[int]) -> str:
    parts = [
        (pad_left if column.align_right else pad)(shorten_middle(cell, n) if isinstance(cell, str) else cell.fit(n), n)
        for cell, column, n in zip(row, columns, widths, strict=True)
    ]
    return (" " * _GAP).join(parts).rstrip()
