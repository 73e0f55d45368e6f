"""The options that select launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def modules_and_lines(what: str) -> Callable[[_Command], _Command]:
    """The options --module and --line.

    Args:
        what: what is done to the launches that match: "Print and save only launches".
    """

    def add(command: _Command) -> _Command:
        line = click.option(
            "--line",
            "lines",
            metavar="FILE:LINE",
            multiple=True,
            help=f"{what} that come from this line of the model: 'model.py:23', '!layers.py:*'. Repeatable.",
        )
        module = click.option(
            "--module",
            "modules",
            metavar="PATTERN",
            multiple=True,
            help=f"{what} of modules whose path matches: 'encoder.layers.0', '!*.norm?'. Repeatable.",
        )
        return module(line(command))

    return add
