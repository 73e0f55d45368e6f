"""Prints lines that fit the terminal; if the output is not a terminal, nothing is wrapped or shortened."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from aoti_debug.base import wording
from aoti_debug.runs.show.terminal_cells import UNLIMITED

if TYPE_CHECKING:
    from rich.console import Console  # the help starts without it

_NARROWEST = 80
_DEFAULT = 100  # columns of a terminal of unknown size


def width(*, err: bool = False) -> int:
    """The columns of stdout, or of stderr; UNLIMITED if that is not a terminal."""
    stream = sys.stderr if err else sys.stdout
    return max(_columns(stream.fileno()), _NARROWEST) if stream.isatty() else UNLIMITED


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


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Prints lines, with what a terminal would interpret escaped; on a terminal, the first line of a fault is red."""
    for line in map(wording.printable, lines):
        click.secho(line, err=err, fg="red", bold=True) if line.startswith("FAULT ") else click.echo(line, err=err)
