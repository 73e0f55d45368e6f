"""Prints lines that fit the terminal, in a pipe at most 200 columns; opens pages in the browser.

Model lines are links to the editor, and pages to the browser (OSC 8); a terminal that knows no links shows the text.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aoti_debug.base import terminal_cells, wording

if TYPE_CHECKING:
    from rich.console import Console  # the help starts without it

_NARROWEST = 80
_DEFAULT = 100  # columns of a terminal of unknown size
PIPED = 200  # columns in a pipe or a file
_BEGIN, _END = "\x1b]8;;", "\x1b\\"
_MODEL_LINE = re.compile(r"(?<![^\s(])(/[^\s:…]+):(\d+)\b")  # an absolute path and a line
_PAGE = re.compile(r"(?<![^\s(])[^\s:…]+\.html\b")
_ORANGE = 208  # of a terminal with 256 colours
_COLOURS: Mapping[
    str, str | int
] = {  # by the first words of a line, the longer ones first; each kind of finding has its own
    "CLEAN as far as compared": "yellow",
    "CLEAN": "green",
    "NO FAULT": "green",
    "BUILD FAILURE": "bright_red",
    "BROKEN CONTRACT": "bright_magenta",
    "HANG": "magenta",
    "FAULT": "red",
    "OVERRUN": "bright_blue",
    "RACE": "bright_white",
    "UNDER THREADS": _ORANGE,
    "NOT FINISHED": "bright_black",
    "EQUAL": "green",
    "NOT COMPARED": "yellow",
    "UNINITIALISED": "blue",
    "NOT FINITE": "bright_yellow",
    "WRONG": "cyan",
    "EAGER REFUSES": "white",
    "DIFFER": "bright_cyan",
    "OVER THE BUDGET": "red",
    "WITHIN THE BUDGET": "green",
    "SAME as far": "yellow",
    "SAME": "green",
    "REPEATABLE": "green",
    "NOT REPEATABLE": "bright_cyan",
    "NOT EXPLAINED": "cyan",
    "STOPPED": "magenta",
    "WATCH": "blue",
    "RECOVERED": "green",
    "NOT RECOVERED": "yellow",
}


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
    click.echo(json_text(document))


def json_text(document: Any) -> str:
    """The text of one JSON object."""
    return json.dumps(document, indent=1, allow_nan=False)


def wants_no_colour() -> bool:
    """True if the environment asks for plain text: NO_COLOR (https://no-color.org), or a terminal without colours."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def is_live(console: Console) -> bool:
    """True if the console is a terminal on which a line can be overwritten."""
    return console.is_terminal and not console.is_dumb_terminal


def colour_of(line: str) -> str | int | None:
    """The colour of a line that begins with a verdict, or ends with the mark of the guilty launch; None for others.

    The words say the same without it.
    """
    if line.endswith("  GUILTY"):
        return "red"
    return next((colour for head, colour in _COLOURS.items() if line.startswith(head)), None)


def with_links(line: str) -> str:
    """The line, whose model lines and pages are links; text without control characters.

    What a model line names is not looked up: the run may be of somebody else.
    """
    return _PAGE.sub(_page, _MODEL_LINE.sub(_model_line, line))


def _model_line(match: re.Match[str]) -> str:
    from urllib.parse import quote  # a pipe does without

    path, number = match.groups()
    return _link(f"vscode://file{quote(path)}:{number}", match[0])


def _page(match: re.Match[str]) -> str:
    import socket  # a pipe does without
    from urllib.parse import quote

    path = Path(match[0]).absolute()
    return _link(f"file://{quote(socket.gethostname())}{quote(str(path))}", match[0])


def _link(address: str, text: str) -> str:
    return f"{_BEGIN}{address}{_END}{text}{_BEGIN}{_END}"


def print_lines(lines: Iterable[str], *, err: bool = False, columns: int | None = None) -> None:
    """Prints lines, with what a terminal would interpret escaped; there, verdicts have colours, and paths are links.

    Args:
        columns: what a longer line is wrapped to; None: the width of the output.
    """
    most = width(err=err) if columns is None else columns
    linked = with_links if (sys.stderr if err else sys.stdout).isatty() and not wants_no_colour() else str
    for line in map(wording.printable, lines):
        colour = colour_of(line)
        for part in terminal_cells.fitted(line, most):
            shown = linked(part)
            click.echo(shown, err=err) if colour is None else click.secho(shown, err=err, fg=colour, bold=True)


def open_page(address: str | Path) -> None:
    """Opens a page, a file or one that is served; a line on stderr says so if there is no browser for it."""
    import webbrowser  # few commands open a page

    uri = address.resolve().as_uri() if isinstance(address, Path) else address
    try:
        is_open = webbrowser.open(uri)
    except webbrowser.Error:
        is_open = False
    if not is_open:
        print_lines(["no browser could be started (BROWSER names one)"], err=True)


def show_page(page: Path, *, opens: bool, err: bool) -> None:
    """Names a page that was written, on stderr where stdout is JSON, and opens it in the browser if asked to."""
    print_lines([f"  report   {page}"], err=err)
    if opens:
        open_page(page)
