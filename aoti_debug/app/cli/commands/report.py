"""`aoti-debug report`: an HTML page that shows a run or a triage."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import open_page, print_json, print_lines
from aoti_debug.app.cli.ranks import write_ranks_pages
from aoti_debug.base import wording
from aoti_debug.runs.ranks.ranks_analysis import analyse
from aoti_debug.runs.ranks.ranks_run import open_ranks
from aoti_debug.runs.rundir import run_directory, summaries
from aoti_debug.views.report import answer_page, report
from aoti_debug.views.report.subject import ReportSubject
from aoti_debug.views.summaries import page

FORMAT = 1


@click.command("report")
@click.argument("what", metavar="[RUN|TRIAGE]", required=False, shell_complete=options.completing("runs"))
@options.page_output("The file to write.  [default: report/index.html in the directory of the run or triage]")
@options.opens()
@options.json_output("report")
def command(*, what: str | None, output: Path | None, opens: bool, as_json: bool) -> None:
    """Write one HTML file that shows a run, or a triage; without a name the newest of both.

    Of a run of several ranks, writes one page of all and one for each rank; of the directory of an answer of
    `invariance`, `equal` or `precision`, the page of that answer.

    The file opens without network. It shows the verdict, the model line, a timeline, the launches around the guilty
    one, and every launch with its statistics, histograms of saved tensors, provenance and source. Without -o, the page
    of summaries of such a run is written beside it, too.
    """
    answer = None if what is None else answer_page.find(what)
    ranks = run_directory.find_ranks(what) if answer is None else None
    if answer is not None:
        written = answer_page.write(answer, output)
        shown, name = answer_page.read(answer).command, answer.name
        lines = page_lines(written, f"{shown} {name}", written.stat().st_size)
    elif ranks is not None:
        analysis = analyse(open_ranks(ranks))
        written = write_ranks_pages(analysis, output)
        count = wording.pluralize(len(analysis.run.recorded), "rank")
        lines = [wording.short_path(written), f"  run of {count} {ranks.name}, a page for each"]
        shown, name = "ranks", ranks.name
    else:
        subject = report.find(what)
        written = report.write(subject, output, _summaries_page(subject) if output is None else "")
        shown, name = subject.what, subject.name
        lines = page_lines(written, f"{shown} {name}", written.stat().st_size)
    if as_json:
        page_bytes = written.stat().st_size
        print_json({"format": FORMAT, "page": str(written.absolute()), "of": shown, "name": name, "bytes": page_bytes})
    else:
        print_lines(lines)
    if opens:
        open_page(written)


def page_lines(path: Path, subject: str, size: int) -> list[str]:
    """The page that was written.

    Args:
        subject: what it shows: "run 20261120-231501-4711".
        size: bytes of the page.
    """
    return [wording.short_path(path), f"  {subject}, {wording.byte_size(size)}"]


def _summaries_page(subject: ReportSubject) -> str:
    """Writes the page of the summaries of a run; its name, "" if there are none."""
    run = subject.run
    found = None if run is None or subject.triage is not None else summaries.read(run)
    if run is None or found is None or not found.series:
        return ""
    return page.write(run, found, found.series).name
