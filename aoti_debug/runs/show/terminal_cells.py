"""Text measured in terminal cells: a wide character takes two, a combining one none."""

from __future__ import annotations

import sys
import unicodedata

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
