"""Prints lines; 100 columns where the output is no terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable

import click

COLUMNS = 100
_NARROWEST = 80


def width() -> int:
    """Columns of what stdout is."""
    if not sys.stdout.isatty():
        return COLUMNS
    return max(shutil.get_terminal_size((COLUMNS, 24)).columns, _NARROWEST)


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """The verdict's first line is red on a terminal."""
    for line in lines:
        click.secho(line, err=err, fg="red", bold=True) if line.startswith("FAULT ") else click.echo(line, err=err)
