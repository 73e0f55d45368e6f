"""`aoti-debug report`: an HTML page that shows a run or a triage."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug import report, wording
from aoti_debug.cli import options
from aoti_debug.cli.lines import print_lines


@click.command("report")
@click.argument("what", metavar="[RUN|TRIAGE]", required=False)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=options.FilePath(dir_okay=False),
    help="The file to write.  [default: report/index.html in the directory of the run or triage]",
)
def command(what: str | None, output: Path | None) -> None:
    """Write one HTML file that shows a run, or a triage; without a name the newest of both.

    The file opens without network. It shows the verdict, the model line, a timeline, the launches around the guilty
    one, and every launch with its statistics, histograms of saved tensors, provenance and source.
    """
    subject = report.find(what)
    path = report.write(subject, output)
    print_lines([f"{path}", f"  {subject.what} {subject.name}, {wording.byte_size(path.stat().st_size)}"])
