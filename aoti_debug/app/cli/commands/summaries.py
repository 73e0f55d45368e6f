"""`aoti-debug summaries`: statistics over the calls of a run, as a table and as a page with curves."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import open_page, print_json, print_lines
from aoti_debug.app.cli.options import modules_and_lines
from aoti_debug.base import wording
from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.package import recording_settings
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.rundir import run_directory, summaries
from aoti_debug.runs.rundir.run_directory import RunDir, name_hint
from aoti_debug.runs.rundir.summaries import Series, Summaries
from aoti_debug.views.summaries.measures import document
from aoti_debug.views.summaries.page import table_lines

LIMIT = 100  # rows


@click.command("summaries")
@click.argument("what", metavar="[RUN]", required=False, shell_complete=options.completing("runs"))
@options.filters("Show only kernels whose name matches: 'triton_*', '!cpp_fused_*'.")
@modules_and_lines("Show only launches")
@click.option("--plot", is_flag=True, help="Also write an HTML page with curves: report/summaries.html in the run.")
@options.page_output("With --plot: the file to write.")
@options.opens("Write the page, as --plot does, and open it in the browser.")
@click.option("--all", "all_", is_flag=True, help=f"Show every tensor, not only {LIMIT} of them.")
@options.json_output("summaries", " It has every call.")
@options.wide
def command(
    *,
    what: str | None,
    filters: tuple[str, ...],
    modules: tuple[str, ...],
    lines: tuple[str, ...],
    plot: bool,
    output: Path | None,
    opens: bool,
    all_: bool,
    as_json: bool,
    columns: int,
) -> None:
    """Show the summaries of a run: the statistics of what its launches wrote, over the calls of the model.

    Without a name, of the newest run. `aoti-debug run --calls N --summaries` records them, in any other program
    AOTI_DEBUG_SUMMARIES=1 does. Tensors whose distribution has changed are marked and come first.
    """
    plot = plot or opens
    if output is not None and not plot:
        raise UsageError("-o needs --plot", hint=options.again_with("--plot"))
    run = run_directory.open_run(what)
    found = summaries.read(run)
    if found is None or not found.series:
        raise RunDirError(
            f"run {run.path.name} holds no summaries",
            hint=f"aoti-debug run {suggested_commands.package(run)} --calls 100 --summaries",
        )
    chosen = _chosen(run, found, SiteFilter(filters, modules, lines))
    if as_json:
        print_json(document(run, found, chosen))
    else:
        print_lines(table_lines(found, chosen, None if all_ else LIMIT, columns), columns=columns)
    if plot:
        from aoti_debug.views.summaries import page  # the table alone starts without the templates

        path = page.write(run, found, chosen, output)
        print_lines([f"curves: {path}, {wording.byte_size(path.stat().st_size)}"], err=as_json)
        if opens:
            open_page(path)


def _chosen(run: RunDir, found: Summaries, wanted: SiteFilter) -> tuple[Series, ...]:
    """The tensors of the launches that pass a filter.

    Raises:
        UsageError: there are none.
    """
    recording_settings.check_patterns(wanted)
    recording_settings.require_names(run.manifest, wanted, f"run {run.path.name}")
    sites = {site.id: site for site in run.manifest.sites}
    wanted_sites = wanted.site_ids(run.manifest.sites)
    chosen = tuple(series for series in found.series if series.site in wanted_sites)
    if not chosen:
        if not wanted:
            raise RunDirError(f"the summaries of run {run.path.name} are of no launch in its manifest")
        criterion, pattern = wanted.patterns()[0]
        known = recording_settings.known_names(
            (sites[id_] for id_ in {s.site: s for s in found.series} if id_ in sites), criterion
        )
        raise UsageError(f"no summary of run {run.path.name} passes {wanted.options}", hint=name_hint(pattern, known))
    return chosen
