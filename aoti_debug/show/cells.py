"""Text measured in terminal cells: a wide character takes two, a combining one none."""

from __future__ import annotations

import sys
import unicodedata

UNLIMITED = sys.maxsize  # the width of what is no terminal: nothing is wrapped or shortened


def count(text: str) -> int:
    """How many cells a text takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def pad(text: str, width: int) -> str:
    """Filled up with spaces on the right."""
    return text + " " * (width - count(text))


def pad_left(text: str, width: int) -> str:
    """Filled up with spaces on the left."""
    return " " * (width - count(text)) + text


def middle_cut(name: str, width: int) -> str:
    """Cut in its middle where it is longer: both ends tell names apart."""
    if count(name) <= width:
        return name
    half = (width - 1) // 2
    return f"{_head(name, width - 1 - half)}…{_head(name[::-1], half)[::-1]}"


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _head(text: str, width: int) -> str:
    """As many characters as fit."""
    end = 0
    for character in text:
        width -= _cells(character)
        if width < 0:
            break
        end += 1
    return text[:end]
