"""Prints lines that fit the terminal; in a pipe, at most 200 columns."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from aoti_debug.base import terminal_cells, wording

if TYPE_CHECKING:
    from rich.console import Console  # the help starts without it

_NARROWEST = 80
_DEFAULT = 100  # columns of a terminal of unknown size
PIPED = 200  # columns in a pipe or a file


def width(*, err: bool = False) -> int:
    """The columns of stdout, or of stderr; PIPED if that is not a terminal."""
    stream = sys.stderr if err else sys.stdout
    return max(_columns(stream.fileno()), _NARROWEST) if stream.isatty() else PIPED


def width_of_code(columns: int) -> int:
    """The columns of lines of code or of calls: they are copied and compared, so only a terminal wraps them.

    Args:
        columns: those of other lines.
    """
    return columns if sys.stdout.isatty() else terminal_cells.UNLIMITED


def _columns(descriptor: int) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(descriptor).columns or _DEFAULT
    except OSError:
        return _DEFAULT


def print_json(document: Any) -> None:
    """Prints one JSON object."""
    click.echo(json.dumps(document, indent=1, allow_nan=False))


def wants_no_colour() -> bool:
    """True if the environment asks for plain text: NO_COLOR (https://no-color.org), or a terminal without colours."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def is_live(console: Console) -> bool:
    """True if the console is a terminal on which a line can be overwritten."""
    return console.is_terminal and not console.is_dumb_terminal


def print_lines(lines: Iterable[str], *, err: bool = False, columns: int | None = None) -> None:
    """Prints lines, with what a terminal would interpret escaped; on a terminal, the first line of a fault is red.

    Args:
        columns: what a longer line is wrapped to; None: the width of the output.
    """
    most = width(err=err) if columns is None else columns
    for line in map(wording.printable, lines):
        is_fault = line.startswith("FAULT ")
        for part in terminal_cells.fitted(line, most):
            click.secho(part, err=err, fg="red", bold=True) if is_fault else click.echo(part, err=err)
