"""`aoti-debug ui`: one local page over all results."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import open_page, print_json, print_lines
from aoti_debug.base.machine.files import results_home

if TYPE_CHECKING:
    from aoti_debug.app.ui import UiServer

FORMAT = 1
_LARGEST_PORT = 65535
_LEADS_TO = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={}">'


@click.command("ui")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, _LARGEST_PORT),
    default=0,
    help="The port to listen on.  [default: any that is free]",
)
@options.opens("Open the list in the browser.")
@options.json_output("ui", " It is printed when the page is served, which goes on.")
def command(*, port: int, opens: bool, as_json: bool) -> None:
    """Serve one local page over all runs, triages and other results: search, open one, compare two.

    It listens on 127.0.0.1 alone, and answers whoever has the address that it prints, with its token. Nothing is
    written, and nothing of a model is executed. Ctrl-C ends it.
    """
    from aoti_debug.app.ui import UiServer  # the help starts without it

    with UiServer(port) as server:
        home = results_home.home().absolute()
        if as_json:
            print_json(ui_document(home, server))
        else:
            print_lines(ui_lines(home, server.address))
        with _shown(server.address) if opens else contextlib.nullcontext():
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print_lines(["", "ended"], err=as_json)


def ui_lines(home: Path, address: str) -> list[str]:
    """The place of the results, the address of their page, and how to end."""
    return [f"results of {home}", f"  {address}", "Ctrl-C ends it"]


def ui_document(home: Path, server: UiServer) -> dict[str, Any]:
    """The place of the results, and the address of their page; whoever has its token sees them."""
    return {
        "format": FORMAT,
        "results": str(home),
        "address": server.address,
        "port": server.server_port,
        "token": server.token,
    }


@contextlib.contextmanager
def _shown(address: str) -> Iterator[None]:
    """Opens an address in the browser, by a file of this user: other users see the words of a command line."""
    with tempfile.NamedTemporaryFile("w", suffix=".html", prefix="aoti-debug-ui-") as file:
        file.write(_LEADS_TO.format(address))
        file.flush()
        open_page(Path(file.name))
        yield
