"""Completions: what a shell offers while a command line is typed: names of runs, kernels and launches.

A run that cannot be read offers nothing: an error in the middle of a line that is typed would help nobody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click
from click.shell_completion import CompletionItem

from aoti_debug.base.errors import AotiDebugError

_MOST = 200  # launches


def runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of runs, and of what has recorded one; files where none begins like that."""
    from aoti_debug.runs.rundir import recorded_runs  # a command line that is run does without

    names = [name for name in ("latest", *reversed(recorded_runs.names())) if name.startswith(incomplete)]
    return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


def runs_and_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of runs; where nothing is typed yet, files, too."""
    found = runs(context, parameter, incomplete)
    return found if incomplete else [*found, CompletionItem(incomplete, type="file")]


def launches(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The kernels of the run that is named so far, or the newest; after a digit, its launches with their kernels."""
    names = [CompletionItem(name, help=text) for name, text in _launches(context.params.get("run"), incomplete)]
    return [item for item in names if item.value.startswith(incomplete)]


def runs_and_launches(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kernels and launches, then runs."""
    found = launches(context, parameter, incomplete)
    others = [item for item in runs(context, parameter, incomplete) if item.type == "plain"]
    return [*found, *others] or [CompletionItem(incomplete, type="file")]


def results(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names that `aoti-debug list` prints."""
    from aoti_debug.app.made_results import made_results

    return [CompletionItem(result.name) for result in made_results() if result.name.startswith(incomplete)]


def _launches(run: str | None, incomplete: str) -> Iterator[tuple[str, str]]:
    """Names with a word on each; none of a run that cannot be read."""
    from aoti_debug.runs.rundir import run_directory

    with contextlib.suppress(AotiDebugError):
        opened = run_directory.open_run(run)
        if not incomplete[:1].isdigit():
            yield from ((kernel, "") for kernel in opened.kernels())
            return
        matching = (launch for launch in opened.launches if launch.id.startswith(incomplete))
        for launch, _ in zip(matching, range(_MOST), strict=False):
            yield launch.id, launch.kernel
