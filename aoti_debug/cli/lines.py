"""Prints lines that fit the terminal; where the output is no terminal, nothing is wrapped or shortened."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from aoti_debug.show.cells import UNLIMITED

if TYPE_CHECKING:
    from rich.console import Console  # the help starts without it

_NARROWEST = 80
_UNKNOWN = 100  # columns of a terminal that does not tell its size


def width(*, err: bool = False) -> int:
    """Columns of stdout, or of stderr; UNLIMITED where that is no terminal."""
    stream = sys.stderr if err else sys.stdout
    return max(_columns(stream.fileno()), _NARROWEST) if stream.isatty() else UNLIMITED


def _columns(descriptor: int) -> int:
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted):
        return int(wanted)
    try:
        return os.get_terminal_size(descriptor).columns or _UNKNOWN
    except OSError:
        return _UNKNOWN


def wants_no_colour() -> bool:
    """Whether the environment asks for plain text: NO_COLOR (https://no-color.org), or a terminal without colours."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def is_live(console: Console) -> bool:
    """Whether a line can be written over there: a terminal, and not a dumb one."""
    return console.is_terminal and not console.is_dumb_terminal


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """The verdict's first line is red on a terminal."""
    for line in lines:
        click.secho(line, err=err, fg="red", bold=True) if line.startswith("FAULT ") else click.echo(line, err=err)
