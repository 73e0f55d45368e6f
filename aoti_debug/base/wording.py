"""Counts, byte sizes, durations and articles in texts for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_AGES = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0}
_LONGEST_LINE = 300
_LINE_BREAKS = str.maketrans("", "", "\n\t")


def byte_size(count: float) -> str:
    """A size in the largest unit, a power of 1024, in which it is at least 1: "1.5 KiB"."""
    unit = next((unit for unit, size in reversed(_UNITS.items()) if count >= size), "B")
    return byte_size_in("B", count) if unit == "B" else f"{count / _UNITS[unit]:.1f} {unit}"


def byte_size_in(unit: str, count: float) -> str:
    """A size in whole units: "64 MiB"."""
    return f"{count / _UNITS[unit]:.0f} {unit}"


def duration(seconds: float) -> str:
    """A duration: "12.3 ms", "2 min 5 s"."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.1f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    minutes, rest = divmod(round(seconds), 60)
    return f"{seconds:.1f} s" if seconds < 59.95 else f"{minutes} min {rest} s"


def age(seconds: float) -> str:
    """A time that has passed, in the largest unit of which it is at least one: "3 d", "12 min"."""
    unit = next((unit for unit, length in _AGES.items() if seconds >= length), "s")
    return f"{max(0, int(seconds // _AGES[unit]))} {unit}"


def number(value: float) -> str:
    """A number with six significant digits; an integer with all digits."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def short_path(path: Path) -> str:
    """A path as it is printed: relative to the working directory, if it is inside of it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def pluralize(amount: int, noun: str) -> str:
    """A number with its noun: "1 launch", "2 launches"."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}{'es' if noun.endswith('ch') else 's'}"


def graph_of(call: int | str) -> str:
    """A CUDA graph by the call that it holds: "the CUDA graph that captured call 1"."""
    return f"the CUDA graph that captured call {call}"


def replay_of(replay: int | str, call: int | str) -> str:
    """A replay of such a graph: "replay 731 of the CUDA graph that captured call 1"."""
    return f"replay {replay} of {graph_of(call)}"


def article(noun: str) -> str:
    """A noun with its indefinite article: "a compiled package", "an exported program"."""
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def comma_separated(names: Iterable[str]) -> str:
    """The names in one line: "a, b"; "none" if there are none."""
    return ", ".join(names) or "none"


def join_truncated(names: Sequence[str], most: int) -> str:
    """Names with commas between them; of more than `most`, the rest is counted: "0.1, 0.2 and 3 more"."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def printable(text: str) -> str:
    """A text on one line, in which characters that a terminal would interpret are escaped: "\\x1b", "\\n"."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Like `printable`, for a text of several lines: line breaks and tabs stay."""
    if text.isprintable() or text.translate(_LINE_BREAKS).isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def first_line(message: str) -> str:
    """The first line of a message that is not blank; at most 300 characters."""
    return truncated(next((line.strip() for line in message.splitlines() if line.strip()), ""), _LONGEST_LINE)


def truncated(text: str, width: int) -> str:
    """The text, or its beginning and "…" if it is longer than `width`."""
    return text if len(text) <= width else f"{text[: width - 1]}…"
