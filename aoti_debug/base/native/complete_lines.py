"""Lines of a file whose writer may have died."""

from __future__ import annotations


def complete_lines(text: str) -> list[str]:
    """Splits a text into lines; a last line without a line break is truncated, and is dropped."""
    return [line.rstrip("\n") for line in text.splitlines(keepends=True) if line.endswith("\n")]
