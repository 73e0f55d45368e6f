"""The data that the checks of one triage share, and the results that they return."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.steps import Steps
from aoti_debug.package.launch_traits import writes_shared_memory
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import UNFINISHED, Finding, FindingKind
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.investigation.triage_runs import TriageOptions, TriageRuns

_CALLS = 4  # of a model that may go wrong when its state has changed
_LONGER = 4  # times the limit that is suggested after one


class Investigation:
    """One model under triage.

    Attributes:
        repro: the folder that the repro of the guilty launch is written to.
        first: the first run, with the names of all launches.
        seen: what was seen in the runs so far: "no fault".
    """

    def __init__(self, options: TriageOptions, runs: TriageRuns, steps: Steps, repro: Path, first: RunResult) -> None:
        self.options = options
        self.runs = runs
        self.steps = steps
        self.repro = repro
        self.first = first
        self.seen = ["no fault"]
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
        undefined: operators of the program that were seen to do what its graph does not say.
    """

    finding: Finding
    diagnosed: DiagnosedRun
    needed: tuple[str, ...] = ()
    saved: RunResult | None = None
    quiet: DiagnosedRun | None = None
    undefined: tuple[str, ...] = ()

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


class SoFar:
    """The state of a triage, for one whose time is over before it is done.

    Attributes:
        run: the last run that was looked at; None before the first one.
        seen: what was seen in the runs: "no fault".
        left: the kinds of findings that were still to be looked for.
        suspicion: the fault that the first run has ended in, then the finding that is being confirmed; None while there
            is none.
        open: what was not looked at, in the words of the checks.
        warnings: of the checks that are done.
    """

    def __init__(self, nothing: str = "no run of the model was looked at", words: tuple[str, ...] = ()) -> None:
        """Begins one.

        Args:
            nothing: what to say before anything is known.
            words: of the command line, that say what kind of triage it is.
        """
        self._nothing, self._words = nothing, words
        self.open: list[str] = []
        self.warnings: tuple[str, ...] = ()
        self.run: RunDir | None = None
        self.seen: list[str] = []
        self.left: list[str] = []
        self.suspicion: Suspicion | None = None

    def outcome(self, options: TriageOptions, steps: Steps) -> Outcome:
        """The outcome of a triage that ends now."""
        longer = _command(options, *self._words, "--time-limit", f"{_LONGER * options.time_limit:g}")
        ended = f"ended after {wording.duration(options.time_limit)}, in: {steps.running}"
        if self.suspicion is not None:
            finding = self.suspicion.finding
            told = (warning for warning in self.warnings if warning not in finding.warnings)
            warnings = (*finding.warnings, *told, f"not confirmed: {ended}")
            return Outcome(replace(finding, warnings=warnings, next=(*finding.next, longer)), self.suspicion.run)
        if self.run is None:
            what = f"{ended}; {self._nothing}"
        else:
            launches = wording.pluralize(len(self.run.launches), "launch")
            left = f"; not looked for to the end: {', '.join(self.left)}" if self.left else ""
            what = "; ".join((f"{launches}: {', '.join(self.seen)}", *self.open, f"{ended}{left}"))
        done = tuple(f"{step.name}: {step.text}" for step in steps.done if step.text)
        return Outcome(Finding(UNFINISHED, what, warnings=(*done, *self.warnings), next=(longer,)), self.run)


def deeper(options: TriageOptions, manifest: Manifest) -> tuple[str, ...]:
    """The command of a triage that looks where one has not looked; () if that one left nothing out.

    It has guards, and more calls of a model that overwrites its weights or buffers.

    Args:
        manifest: of the package that was run.
    """
    calls = ("--calls", str(_CALLS)) if options.calls == 1 and writes_shared_memory(manifest) else ()
    guards = () if options.guards else ("--guards",)
    return (_command(options, *calls, *guards),) if calls or guards else ()


def _command(options: TriageOptions, *more: str) -> str:
    """The command line of the same triage with more options."""
    return shlex.join(["aoti-debug", "triage", str(options.model), *_words(options), *more])


def _words(options: TriageOptions) -> list[str]:
    """The options of the command line of the same triage, as far as they say what is looked at."""
    of_triage = {
        "--random-inputs": options.random_inputs,
        "--exported": options.exported,
        "--model": options.name or None,
        "--threads": options.threads,
    }
    words = [word for name, value in of_triage.items() if value is not None for word in (name, str(value))]
    words += ["--guards"] if options.guards else []
    words += [] if options.compare else ["--no-compare"]
    return [*options.words, *words]


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
