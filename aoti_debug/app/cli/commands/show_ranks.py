"""The text that `aoti-debug show` prints of a run of several ranks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from aoti_debug.app.cli.lines import print_lines
from aoti_debug.base.errors import UsageError
from aoti_debug.runs.ranks import agreement, ranks_run
from aoti_debug.runs.ranks.agreement import Expectation
from aoti_debug.runs.ranks.document import document
from aoti_debug.runs.ranks.ranks_analysis import analyse
from aoti_debug.runs.ranks.text import ranks_lines


def require_no_option_of_one_rank(path: Path, options: Mapping[str, Any]) -> None:
    """Checks that the command line of a run of ranks has no option that only one rank can answer.

    Args:
        options: the values of those options by name; a false one was not given.

    Raises:
        UsageError: one was given.
        RunDirError: the run cannot be read.
    """
    for option, value in options.items():
        if value:
            rank = ranks_run.open_ranks(path).recorded[0].path
            raise UsageError(f"{option} needs one rank", hint=shlex.join(["aoti-debug", "show", str(rank)]))


def print_ranks(path: Path, agree: tuple[str, ...], sharded: tuple[str, ...], as_json: bool, columns: int) -> None:
    """Prints a run of ranks in lines or as JSON, after a warning of the patterns that match nothing.

    Args:
        agree, sharded: patterns of the options of these names.

    Raises:
        RunDirError: a record of a run cannot be read.
    """
    run, expected = ranks_run.open_ranks(path), Expectation(agree, sharded)
    print_lines(_unmatched_warning(agreement.unmatched(run.recorded, expected)), err=True)
    analysis = analyse(run, expected)
    if as_json:
        click.echo(json.dumps(document(analysis), indent=1, allow_nan=False))
    else:
        print_lines(ranks_lines(analysis, columns))


def _unmatched_warning(unmatched: Expectation) -> list[str]:
    """The warning in lines: patterns of --agree and --sharded that match nothing; none without."""
    lines = [f"warning: no argument of a launch matches --agree {pattern}" for pattern in unmatched.agree]
    return lines + [f"warning: no weight matches --sharded {pattern}" for pattern in unmatched.sharded]
