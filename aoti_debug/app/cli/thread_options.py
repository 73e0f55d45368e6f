"""Calls of a model from several threads: the options of the commands that make them, and what they print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from aoti_debug.app.cli import options
from aoti_debug.base import terminal_cells
from aoti_debug.base.errors import UsageError
from aoti_debug.compare.bisect.threaded_calls import (
    CALLS_OF_A_THREAD,
    ThreadedCalls,
    ThreadsOptions,
    recorded_by_default,
)
from aoti_debug.compare.bisect.threads_text import fault_line, race_lines, threads_lines
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.threads_json import Jitter, WeightUpdates

_Command = TypeVar("_Command", bound=Callable[..., Any])
_LARGEST_SEED = 2**31 - 1
_EXCLUDED = ("repeat", "inspector", "tag", "ranks", "guards", "summaries")


def threads(command: _Command) -> _Command:
    """--threads, --runners, --update-weights and --jitter: calls of the model from several threads."""
    count = click.option(
        "--threads",
        metavar="N",
        type=click.IntRange(min=2),
        help="Make the calls from N threads, after the same calls alone, and compare what they return bit for bit. "
        "Memory that launches of two threads are passed in no order, one of them writing, is a finding, too. "
        "--calls is the number of calls of all threads together.  [default for it: 4 each]",
    )
    runners = click.option(
        "--runners",
        metavar="K",
        type=click.IntRange(min=1),
        help="With --threads: how many calls the loader lets run at once.  [default: as many as threads]",
    )
    updates = click.option(
        "--update-weights",
        is_flag=True,
        help="With --threads: after each call of the first thread, replace the weights by equal ones.",
    )
    jitter = click.option(
        "--jitter",
        metavar="[SEED]",
        type=click.IntRange(0, _LARGEST_SEED),
        is_flag=False,
        flag_value=0,
        help="With --threads: random delays before launches, and tensors in memory that is reused at once and NaN at "
        "first, so that a race shows more often; if a call is wrong, find the smallest part of it that shows it. "
        "Without SEED, it is 0.",
    )
    return count(runners(updates(jitter(command))))


def calls(context: click.Context, number: int, threads: int | None) -> int:
    """The number of calls of all threads together; without threads, `number`, the value of --calls.

    Raises:
        UsageError: an option needs --threads, or is of no use with it.
    """
    given = options.given(context)
    if threads is None:
        needing = [given[name] for name in ("runners", "update_weights", "jitter") if name in given]
        if needing:
            raise UsageError(f"{needing[0]} needs --threads", hint=options.again_with("--threads", "4"))
        return number
    for name in _EXCLUDED:
        if name in given:
            raise UsageError(f"--threads and {given[name]} exclude each other", hint=f"leave out {given[name]}")
    return number if "calls" in given else CALLS_OF_A_THREAD * threads


def asked(
    run: RunOptions, threads: int, runners: int | None, jitter: int | None, *, update_weights: bool
) -> ThreadsOptions:
    """The calls that the options ask for."""
    updates = WeightUpdates.EQUAL if update_weights else WeightUpdates.NONE
    return ThreadsOptions(
        run=recorded_by_default(run),
        threads=threads,
        runners=runners,
        updates=updates,
        jitter=None if jitter is None else Jitter(jitter),
    )


def fault_lines(called: ThreadedCalls | None, columns: int) -> list[str]:
    """The sentence on the thread in which a run failed; [] without threads."""
    text = "" if called is None else fault_line(called)
    return terminal_cells.wrapped(text, columns, "  threads  ", " " * 11) if text else []


def outcome_lines(called: ThreadedCalls | None, columns: int) -> list[str]:
    """The outcome of the comparison with the calls alone, and the races; [] without threads."""
    if called is None:
        return []
    blocks = [lines for lines in (threads_lines(called), race_lines(called.races, called.result.run)) if lines]
    return [part for lines in blocks for part in ("", *_fitted(lines, columns))]


def _fitted(lines: list[str], columns: int) -> list[str]:
    return [part for line in lines for part in terminal_cells.fitted(line, columns)]
