"""The subject of a report: a run, or a triage with its runs. All directories are read here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import Step
from aoti_debug.compare import stored_comparison
from aoti_debug.compare.comparison import Comparison
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.diagnosis.verdict_text import finding_of
from aoti_debug.runs.rundir import recorded_runs, run_directory, run_json
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show.verdict import argument_sentences
from aoti_debug.triage.results import triage_directory, wrong_value_finding
from aoti_debug.triage.results.triage_directory import TriageDir

REPORT = triage_directory.REPORT


@dataclass(frozen=True)
class ReportSubject:
    """A run, or a triage with its runs, and the finding that the report shows.

    Attributes:
        name: of the directory.
        path: the directory.
        run: the run whose launches are shown; None where the model was never called.
        verdict: on that run.
        others: runs of the same package that recorded more of the same launches.
        steps: of a triage.
        versions: of aoti-debug, torch and so on, by name.
        command: the words of the command line that made it.
        triage: None for a run.
        comparison: of the run with its program; None if there was none.
    """

    name: str
    path: Path
    finding: Finding
    run: RunDir | None = None
    verdict: Verdict | None = None
    others: tuple[RunDir, ...] = ()
    steps: tuple[Step, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    triage: TriageDir | None = None
    comparison: Comparison | None = None

    @property
    def what(self) -> str:
        """ "run" or "triage"."""
        return "run" if self.triage is None else "triage"

    @property
    def model(self) -> str:
        """The file name of the model, as far as the command line or the run names one; else ""."""
        return run_json.model_of(self.command) or ("" if self.run is None else self.run.info.built_from)

    @property
    def report(self) -> Path:
        """The path of its report if the user names no other."""
        return self.path / REPORT

    @property
    def command_line(self) -> str:
        """The command that made it, quoted for a shell."""
        return shlex.join(self.command)


def find(name: str | Path | None = None) -> ReportSubject:
    """Opens a run or a triage by its path or name; None for the newest of both.

    Raises:
        RunDirError: there is neither, or it is damaged.
    """
    found = recorded_runs.find(name)
    if found is not None and found.is_of_triage:
        return of_triage(triage_directory.open_triage(found.directory))
    if found is None and name is None:
        raise RunDirError(
            f"no runs in {ResultKind.RUNS.places()[0]}, no triages in {ResultKind.TRIAGES.places()[0]}",
            hint="aoti-debug run PACKAGE.pt2 or aoti-debug triage MODEL.pt2 makes one",
        )
    known = recorded_runs.names()
    if found is None and known:
        raise RunDirError(f"no run or triage {str(name)!r}", hint=run_directory.name_hint(str(name), known))
    return of_run(run_directory.open_run(name))


def of_run(run: RunDir) -> ReportSubject:
    """The subject of a report on a run, with its comparison if its directory holds one.

    Raises:
        RunDirError: the comparison is damaged.
    """
    return _of_run(run, stored_comparison.read(run))


def of_comparison(comparison: Comparison) -> ReportSubject:
    """The subject of a report on the run that was compared."""
    return _of_run(comparison.run, comparison)


def _of_run(run: RunDir, comparison: Comparison | None) -> ReportSubject:
    info = run.info
    versions = {
        "aoti-debug": info.tool_version or run.manifest.tool_version,
        "torch": info.torch_version or run.manifest.torch_version,
    }
    verdict = diagnose(run)
    finding = finding_of(run, verdict, argument_sentences(verdict))
    if comparison is not None and verdict is None:
        finding = _compared(finding, comparison)
    return ReportSubject(
        run.path.name,
        run.path,
        finding,
        run,
        verdict,
        versions=versions,
        command=info.command,
        comparison=comparison,
    )


def _compared(finding: Finding, comparison: Comparison) -> Finding:
    """What the comparison of a run without a fault has found."""
    found = wrong_value_finding.finding_of(comparison)
    repro = comparison.repro if comparison.run.is_made_here else ""  # nobody should run an untrusted file
    return replace(
        found,
        what=found.what or finding.what,
        repro=repro,
        next=(shlex.join(("python", f"{repro}/repro.py")),) if repro else finding.next,
    )


def of_triage(triage: TriageDir) -> ReportSubject:
    """The subject of a report on a triage.

    Raises:
        RunDirError: its run is damaged.
    """
    main = None if triage.run is None else triage.open_run(triage.run)
    others = tuple(run for path in triage.runs if main is not None and (run := _other(triage, path, main)) is not None)
    record = triage.record
    versions = dict(record.versions)
    if main is not None:
        tool = main.info.tool_version or main.manifest.tool_version
        versions = {"aoti-debug": tool, "torch": main.manifest.torch_version} | versions
    verdict = None if main is None else diagnose(main)
    compared = (stored_comparison.read(run) for run in (main, *others) if run is not None)
    return ReportSubject(
        triage.path.name,
        triage.path,
        triage.finding,
        main,
        verdict,
        others,
        record.steps,
        versions,
        record.command,
        triage,
        next((comparison for comparison in compared if comparison is not None), None),
    )


def _other(triage: TriageDir, path: Path, main: RunDir) -> RunDir | None:
    """Another run of the triage; None where it is the main one, cannot be read, or ran other code."""
    try:
        run = triage.open_run(path)
    except RunDirError:
        return None  # a trial that was killed before it recorded anything
    same = run.manifest.source_sha256 == main.manifest.source_sha256
    return run if same and run.path != main.path else None
