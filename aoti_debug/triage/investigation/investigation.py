"""The data that the checks of one triage share, and the results that they return."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.steps import Steps
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import Finding, FindingKind
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch
from aoti_debug.triage.investigation.triage_runs import TriageOptions, TriageRuns


class Investigation:
    """One model under triage.

    Attributes:
        repro: the folder that the repro of the guilty launch is written to.
        first: the first run, with the names of all launches.
    """

    def __init__(self, options: TriageOptions, runs: TriageRuns, steps: Steps, repro: Path, first: RunResult) -> None:
        self.options = options
        self.runs = runs
        self.steps = steps
        self.repro = repro
        self.first = first
        self._measured: RunResult | None = None

    def run_measured(self) -> RunResult:
        """The run with statistics of every tensor, which the first call makes.

        If it fails beside what was begun ahead, it is made again, alone.
        """
        if self._measured is None:
            self._measured = self._measure()
        return self._measured

    def _measure(self) -> RunResult:
        if self.runs.has_begun_ahead:
            with contextlib.suppress(AotiDebugError):
                result = self.runs.values()
                if result.verdict is None:
                    return result
            self.runs.close()
        return self.runs.values()


@dataclass(frozen=True)
class Suspicion:
    """A finding that no repro has confirmed yet.

    Attributes:
        diagnosed: the run that shows it.
        needed: the launches of that run whose tensors tell more: "0.3".
        saved: a run that saved those tensors; None if there is none yet.
        quiet: a run in which the guilty launch did not fail, and whose inputs its repro gets; None for those of the run
            that shows it.
    """

    finding: Finding
    diagnosed: DiagnosedRun
    needed: tuple[str, ...] = ()
    saved: RunResult | None = None
    quiet: DiagnosedRun | None = None

    @property
    def with_inputs(self) -> DiagnosedRun:
        """The run that has the inputs for a repro of the guilty launch."""
        return self.quiet or self.diagnosed

    @property
    def run(self) -> RunDir:
        """The run that shows it, without its diagnosis."""
        return self.diagnosed.run

    @property
    def launch(self) -> Launch | None:
        """The guilty launch; None where none can be named."""
        where = self.finding.where
        return self.run.launch(where.launch) if where is not None and where.launch else None


@dataclass(frozen=True)
class Outcome:
    """The finding of a triage, and the run behind it.

    Attributes:
        run: the run that shows it best; None where the model was never called.
        opened: the runs of the triage, which are read already, by their directories.
    """

    finding: Finding
    run: RunDir | None
    opened: Mapping[Path, RunDir] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """A kind of finding and how a triage looks for it: one of a module of aoti_debug/triage/checks/.

    Attributes:
        look: looks for findings of this kind in the first run, or makes more runs. None where there is nothing to
            tell; a finding of kind CLEAN where there are only warnings, of kind INCOMPLETE where something was not
            looked at. One of the kind of another check is confirmed by that.
        confirm: replays the guilty launch of a finding of this kind alone, and explains what that shows.
    """

    kind: FindingKind
    look: Callable[[Investigation], Suspicion | None]
    confirm: Callable[[Investigation, Suspicion], Outcome]
