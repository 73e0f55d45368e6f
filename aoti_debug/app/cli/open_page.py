"""--open: shows a page that a command has written in the browser of the user."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from aoti_debug.app.cli.lines import print_lines

_Command = TypeVar("_Command", bound=Callable[..., Any])


def option(text: str = "Open the page in the browser.") -> Callable[[_Command], _Command]:
    """--open, as `opens`; the text is its help."""
    return click.option("--open", "opens", is_flag=True, help=text)


def open_page(address: str | Path) -> None:
    """Opens a page, a file or one that is served; a line on stderr says so if there is no browser for it."""
    uri = address.resolve().as_uri() if isinstance(address, Path) else address
    try:
        is_open = webbrowser.open(uri)
    except webbrowser.Error:
        is_open = False
    if not is_open:
        print_lines(["no browser could be started (BROWSER names one)"], err=True)
