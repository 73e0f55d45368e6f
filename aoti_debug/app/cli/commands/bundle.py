"""`aoti-debug bundle`: one archive to send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_json, print_lines, width
from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.terminal_cells import shorten_middle
from aoti_debug.views.bundle.bundle import Bundle, BundleOptions, write_bundle
from aoti_debug.views.redaction import RedactedPart
from aoti_debug.views.report import report

FORMAT = 1
_SIZE = 11  # columns


@click.command("bundle")
@click.argument("what", metavar="[RUN|TRIAGE]", required=False, shell_complete=options.completing("runs"))
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=options.FilePath(),
    help="The archive to write: FILE.zip or FILE.tar.gz.  [default: aoti-debug/bundles/WHAT_NAME.zip]",
)
@click.option(
    "--no-tensors",
    "parts",
    flag_value=RedactedPart.TENSORS,
    type=click.UNPROCESSED,
    multiple=True,
    help="Leave out values of tensors and what was computed from them: statistics, histograms, the repro.",
)
@click.option(
    "--no-source",
    "parts",
    flag_value=RedactedPart.SOURCE,
    type=click.UNPROCESSED,
    multiple=True,
    help="Leave out source of kernels and of the model, call stacks, the repro.",
)
@options.json_output("bundle")
def command(*, what: str | None, output: Path | None, parts: tuple[RedactedPart, ...], as_json: bool) -> None:
    """Pack a run, or a triage, into one archive to send; without a name the newest of both.

    It holds verdict, report, repro, manifest, journal, logs and versions; never the package and its weights. What is
    inside, and what was left out, is listed.
    """
    written = write_bundle(report.find(what), BundleOptions(output, left_out=parts))
    if as_json:
        print_json(document(written))
    else:
        print_lines(bundle_lines(written, width()))


def document(written: Bundle) -> dict[str, Any]:
    """The archive as a JSON object (docs/bundle.schema.json)."""
    contents = written.contents
    return {
        "format": FORMAT,
        "archive": str(written.path.absolute()),
        "bytes": written.bytes,
        "folder": contents.root,
        "files": [{"name": item.name, "bytes": item.size} for item in contents.items],
        "left_out": [{"name": left.name, "bytes": left.size, "why": left.why} for left in contents.left_out],
    }


def bundle_lines(written: Bundle, columns: int) -> list[str]:
    """The archive, what is inside of it, and what was left out and why."""
    contents = written.contents
    count, size = wording.pluralize(len(contents.items), "file"), wording.byte_size(written.bytes)
    lines = [wording.short_path(written.path), f"  {count}, {size}; in {contents.root}/:"]
    for item in contents.items:
        lines += _row(item.name, item.size, "", columns)
    if contents.left_out:
        lines.append("left out:")
    for left in contents.left_out:
        lines += _row(left.name, left.size, left.why, columns)
    return lines


def _row(name: str, size: int, why: str, columns: int) -> list[str]:
    indent = " " * (_SIZE + 2)
    shown = shorten_middle(name, columns - len(indent) - 1)
    first, *more = terminal_cells.wrapped(f"{shown}: {why}" if why else shown, columns, indent)
    return [f"{wording.byte_size(size):>{_SIZE}}{first[_SIZE:]}", *more]
