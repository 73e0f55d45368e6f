"""The magic of notebooks: `%load_ext aoti_debug`, then `%%aoti_debug` at the top of a cell records its packages."""

from __future__ import annotations

import argparse
import functools
import shlex
from typing import Any, NoReturn

from aoti_debug.app.python.record import RecordedBlock, record
from aoti_debug.base.errors import AotiDebugError, UsageError

NAME = "aoti_debug"
_USAGE = "%%aoti_debug [--level LEVEL] [--filter PATTERN]... [--out DIR] [--keep-inputs]"


def load_ipython_extension(shell: Any) -> None:
    """Adds the magic to a shell of IPython, which calls this for `%load_ext aoti_debug`."""
    shell.register_magic_function(functools.partial(recorded_cell, shell), "cell", NAME)


def recorded_cell(shell: Any, line: str, cell: str) -> RecordedBlock | None:
    """Runs a cell whose packages are recorded.

    Args:
        line: the options behind the name of the magic.
        cell: the lines below.

    Returns:
        The record, which the notebook shows as the report of its run; None after an error in the options.
    """
    try:
        given = _parser().parse_args(shlex.split(line))
        block = record(level=given.level, filters=given.filters, keep_inputs=given.keep_inputs, out=given.out)
        with block:
            shell.run_cell(cell)
    except AotiDebugError as error:
        print(f"error: {error}", *([f"hint: {error.hint}"] if error.hint else []), sep="\n")
        return None
    return block


class _Parser(argparse.ArgumentParser):
    """A parser whose mistakes are errors, not the end of the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=_USAGE)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=f"%%{NAME}", add_help=False)
    parser.add_argument("--level")
    parser.add_argument("--filter", dest="filters", action="append", default=[])
    parser.add_argument("--keep-inputs", action="store_true")
    parser.add_argument("--out")
    return parser
