"""`aoti-debug triage`: finds out why a model crashes, hangs, or computes NaN or wrong values."""

from __future__ import annotations

import contextlib
import importlib
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from aoti_debug.app.cli import options, script_arguments
from aoti_debug.app.cli.lines import open_page, print_json, print_lines, width
from aoti_debug.app.cli.live_output import START, StepLines, TimedPhase, timing_lines
from aoti_debug.app.cli.ranks import write_ranks_pages
from aoti_debug.app.cli.script_arguments import PassedThrough
from aoti_debug.app.execute.triage_script import triage_script
from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, UsageError
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import LastDurations, since_process_start
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.native import core_file
from aoti_debug.instrument.builder.options import TIMEOUT
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.ranks import ranks_run
from aoti_debug.runs.ranks.ranks_analysis import analyse
from aoti_debug.runs.run.script_process import UserScript
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.show.finding import all_finding_lines, finding_lines, with_relative_paths
from aoti_debug.triage.investigation.triage_runs import TIME_LIMIT, TriageOptions
from aoti_debug.triage.post_mortem import triage_core
from aoti_debug.triage.results.finding_kinds import Infinities
from aoti_debug.triage.results.ranks_finding import ranks_finding
from aoti_debug.triage.results.triage_directory import TriageDir
from aoti_debug.triage.session import triage, triage_races
from aoti_debug.views.report import report
from aoti_debug.views.report.page import prepare

_REPORT = "report"  # the step that follows the triage
_OF_RANKS = ("model", "verbose", "opens", "as_json")
_OF_CORES = (
    *("model", "package", "exported", "name", "configs", "imports", "libraries", "trusted"),
    *("out", "timings", "verbose", "opens", "as_json", "time_limit"),
)
_OF_MODELS = ("inputs", "random_inputs", "exported", "name", "races", "configs", "build_timeout")


@click.command("triage", cls=script_arguments.MayRunScript)
@click.argument("model", metavar="MODEL.pt2|SCRIPT.py [ARGS]...|CORE|RANKS", type=options.FilePath())
@script_arguments.module
@script_arguments.torch_compile
@options.inputs("the example inputs of the program")
@options.random_inputs()
@options.exported
@click.option(
    "--package",
    metavar="FILE",
    type=options.FilePath(),
    help="Of a core file: the package that the process had loaded.",
)
@options.model_name
@options.calls
@options.guards
@click.option(
    "--threads",
    metavar="N",
    type=click.IntRange(min=2),
    help="If nothing else is wrong: also call the model from N threads, and compare with the same calls alone.",
)
@click.option(
    "--races",
    is_flag=True,
    help="Only look for races between streams, in the generated code: nothing is compiled or run, unless --threads is "
    "given: then also for those of threads.",
)
@click.option("--no-compare", is_flag=True, help="Do not compare every launch with what the program says.")
@click.option(
    "--inf",
    "infinities",
    type=click.Choice([policy.value for policy in Infinities]),
    default=Infinities.FAIL.value,
    show_default=True,
    help="What unintended infinities are: a finding, a note, or nothing.",
)
@options.hang_timeout("The model hangs if no launch begins or ends for this long.")
@options.seconds(
    "--build-timeout", "The build hangs if torch takes longer than this to lower the program.", default=TIMEOUT
)
@options.seconds(
    "--time-limit", "End after this long, with what was found so far; a script may run longer.", default=TIME_LIMIT
)
@options.count("--tries", "How many runs to attempt to reproduce a fault.", default=3)
@options.inductor_configs
@options.user_code
@options.out(ResultKind.TRIAGES, "the triage")
@options.timings
@click.option("-v", "--verbose", is_flag=True, help="Print all evidence and notes, not just the first screen.")
@options.opens("Open the report in the browser.")
@options.json_output("triage")
@click.pass_context
def command(
    context: click.Context,
    *,
    model: Path,
    is_module: bool,
    torch_compile: bool,
    inputs: Path | None,
    random_inputs: int | None,
    exported: Path | None,
    package: Path | None,
    name: str,
    calls: int,
    guards: bool,
    threads: int | None,
    races: bool,
    no_compare: bool,
    infinities: str,
    stall: float,
    build_timeout: float,
    time_limit: float,
    tries: int,
    configs: tuple[str, ...],
    user_code: UserCode,
    out: Path,
    timings: bool,
    verbose: bool,
    opens: bool,
    as_json: bool,
) -> None:
    """Find out why MODEL.pt2 crashes, hangs, or computes NaN or wrong values.

    MODEL.pt2 is an exported program, a package that torch has compiled (its own kernels and weights are run), or one
    that `aoti-debug build` made. It is run several times, each time in a process of its own; then the guilty launch is
    replayed alone. The result is a verdict with its evidence, a tested repro, and a report. Exit code 1: there is a
    finding; 8: clean as far as compared, which is less than all.

    SCRIPT.py is run first, as by `aoti-debug exec`, with its arguments; -m MODULE runs a module. The call of a package
    that failed in it is looked into: the one with a fault, or with results that are not finite, or else the last one of
    each package.

    A core file of a process that had loaded a package is read with gdb: the launch that it ended in, by its stacks,
    the records of its run and the memory in the core. --package names the package. That of a GPU is read with cuda-gdb:
    the kernel that failed, and where in it.

    RANKS is the directory of a run of several ranks (torchrun), or its name. Nothing is run then: the verdict is the
    rank that failed first with its launch, and the ranks that wait for it.
    """
    start = TimedPhase(START, since_process_start())
    script = script_arguments.of(context, str(model), is_module=is_module)
    ranks = None if script is not None or model.is_file() else run_directory.find_ranks(model)
    if ranks is not None:
        finding, page = _of_ranks(context, ranks)
        pages = f"{wording.short_path(page)}, with a page of each rank"
        lines_of = all_finding_lines if verbose else finding_lines
        _print_finding(finding, [] if as_json else lines_of(with_relative_paths(finding), width(), pages))
        if opens:
            open_page(page)
        context.exit(finding.kind.exit_code)
    last = LastDurations("triage", str(model.resolve()))
    chosen = TriageOptions(
        model=model,
        inputs=inputs,
        random_inputs=random_inputs,
        name=name,
        exported=exported,
        out=out,
        calls=calls,
        stall=stall,
        tries=tries,
        infinities=Infinities(infinities),
        guards=guards,
        threads=threads,
        compare=not no_compare,
        inductor_configs=options.parse_configs(configs),
        user_code=user_code,
        build_timeout=build_timeout,
        time_limit=time_limit,
    )
    words = ("aoti-debug", *sys.argv[1:])
    is_core = script is None and core_file.is_core(model)
    if is_core:
        _check_core(context, model)
    elif package is not None:
        raise UsageError("--package is for a core file", hint=_hint_of_package(model, package))
    if script is not None:
        _check_script(context, script)
        script = replace(script, stdout=sys.stderr.fileno() if as_json else None)
        print_lines(filter(None, [script_arguments.misplaced(context, script)]), err=True)
    elif not is_core:
        threading.Thread(target=_prepare, args=(model,), daemon=True).start()  # while torch is imported
    with StepLines(last) as progress:
        if is_core:
            finished = triage_core(chosen, package, progress, command=words)
        elif script is not None:
            finished = triage_script(script, chosen, PassedThrough(), progress, command=words)
        else:
            finished = (triage_races if races else triage)(chosen, progress, command=words)
        progress.began(_REPORT)
        began = time.monotonic()
        written, unwritten = _written(finished)
        report_seconds = time.monotonic() - began
    shown = "" if written is None else wording.short_path(written)
    finding = with_relative_paths(finished.finding)
    all_of_it = shlex.join(["aoti-debug", "show", _name_of(finished.path)])
    lines = all_finding_lines(finding, width(), shown) if verbose else finding_lines(finding, width(), shown, all_of_it)
    _print_finding(finished.finding, [] if as_json else ["", *lines])
    if unwritten is not None:
        raise unwritten
    if opens and written is not None:
        open_page(written)
    if timings:
        phases = [start, *_phases(finished), TimedPhase(_REPORT, report_seconds)]
        print_lines(["", *timing_lines(phases, since_process_start())], err=True)
    context.exit(finished.finding.kind.exit_code)


def _name_of(path: Path) -> str:
    """The name that finds a triage in the home, "20261120-231501-4711"; its path elsewhere."""
    return path.name if path.parent == ResultKind.TRIAGES.place().resolve() else wording.short_path(path)


def _print_finding(finding: Finding, lines: Sequence[str]) -> None:
    """Prints a finding as these lines, or as JSON if there are none."""
    if lines:
        print_lines(lines)
    else:
        print_json(findings.to_json(finding))


def _phases(finished: TriageDir) -> Iterator[TimedPhase]:
    for step in finished.record.steps:
        yield TimedPhase(step.name, step.seconds, step.timings, step.began)
    for name, seconds in finished.record.between.items():
        yield TimedPhase(name, seconds)


def _written(finished: TriageDir) -> tuple[Path | None, UsageError | None]:
    """The page of a triage, or why it could not be written: the finding is told all the same."""
    try:
        return report.write_triage(finished), None
    except UsageError as error:
        command = shlex.join(["aoti-debug", "report", wording.short_path(finished.path), "-o", "report.html"])
        return None, UsageError(str(error), hint=f"the finding is in {wording.short_path(finished.path)}: {command}")


def _check_script(context: click.Context, script: UserScript) -> None:
    """Raises UsageError if there is no such script, or an option was given that is of no use with one."""
    if not script.is_module and not Path(script.target).exists():
        raise UsageError(f"{script.target} does not exist", hint="aoti-debug triage SCRIPT.py, or -m MODULE")
    for name, option in options.given(context).items():
        if name in _OF_MODELS:
            raise UsageError(
                f"{option} is for a MODEL.pt2: a script makes its own models and inputs", hint=f"leave out {option}"
            )


def _hint_of_package(model: Path, package: Path) -> str:
    """The command to type where --package was given with what is no core file."""
    with contextlib.suppress(AotiDebugError):
        if archive.inspect(model).kind is ArtifactKind.EXPORTED:
            return shlex.join(["aoti-debug", "triage", str(package), "--exported", str(model)])
    return "aoti-debug triage CORE --package MODEL.pt2"


def _check_core(context: click.Context, core: Path) -> None:
    """Raises UsageError if an option was given that is of no use with a core file."""
    for name, option in options.given(context).items():
        if name not in _OF_CORES:
            raise UsageError(f"{option} needs a model; {core} is a core file", hint=f"leave out {option}")


def _prepare(model: Path) -> None:
    """Imports and makes what the checks and the report will need."""
    importlib.import_module("numpy")
    with contextlib.suppress(AotiDebugError):  # the triage reads the file, too, and says what is wrong with it
        package = archive.inspect(model)
        prepare(package.manifest().kernels if package.kind is ArtifactKind.INSTRUMENTED else ())


def _of_ranks(context: click.Context, path: Path) -> tuple[Finding, Path]:
    """The finding of a run of ranks, which no option that needs a model may be given with, and its page.

    Raises:
        UsageError: such an option was given.
        RunDirError: a record of a rank cannot be read.
    """
    for name, option in options.given(context).items():
        if name not in _OF_RANKS:
            raise UsageError(f"{option} needs a model; {path} is a run of ranks", hint=f"leave out {option}")
    analysis = analyse(ranks_run.open_ranks(path))
    return ranks_finding(analysis), write_ranks_pages(analysis)
