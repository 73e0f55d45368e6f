"""The output of `aoti-debug show` for a run of several ranks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from aoti_debug.app.cli.lines import print_lines
from aoti_debug.app.cli.show_run import ShowOptions
from aoti_debug.base.errors import UsageError
from aoti_debug.runs.ranks import agreement, ranks_run
from aoti_debug.runs.ranks.agreement import Expectation
from aoti_debug.runs.ranks.document import document
from aoti_debug.runs.ranks.ranks_analysis import analyse
from aoti_debug.runs.ranks.text import ranks_lines


def require_none(options: Sequence[str], path: Path) -> None:
    """Checks that none of the options is given that only one rank can answer.

    Args:
        options: those that are given.

    Raises:
        UsageError: there is one.
        RunDirError: the run cannot be read.
    """
    if options:
        rank = ranks_run.open_ranks(path).recorded[0].path
        raise UsageError(f"{options[0]} needs one rank", hint=shlex.join(["aoti-debug", "show", str(rank)]))


def show_ranks(path: Path, asked: ShowOptions) -> None:
    """Prints a run of ranks in lines or as JSON, after a warning of the patterns that match nothing.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    run, expected = ranks_run.open_ranks(path), Expectation(asked.agree, asked.sharded)
    print_lines(_unmatched_warning(agreement.unmatched(run.recorded, expected)), err=True)
    analysis = analyse(run, expected)
    if asked.as_json:
        click.echo(json.dumps(document(analysis), indent=1, allow_nan=False))
    else:
        print_lines(ranks_lines(analysis, asked.columns))


def _unmatched_warning(unmatched: Expectation) -> list[str]:
    """The warning in lines: patterns of --agree and --sharded that match nothing; none without."""
    lines = [f"warning: no argument of a launch matches --agree {pattern}" for pattern in unmatched.agree]
    return lines + [f"warning: no weight matches --sharded {pattern}" for pattern in unmatched.sharded]
