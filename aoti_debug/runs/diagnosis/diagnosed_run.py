"""A run with its diagnosis: verdict and dataflow, each computed once; runs that have to end well."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base import wording
from aoti_debug.base.errors import ModelFaultError
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.formats import shared_files
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind, RunInfo

if TYPE_CHECKING:
    from aoti_debug.runs.diagnosis.rescue import Rescue


@dataclass(frozen=True)
class DiagnosedRun:
    """A run with its verdict and its dataflow, which are computed when they are first asked for."""

    run: RunDir

    @cached_property
    def verdict(self) -> Verdict | None:
        """The verdict; None for a run without a fault, or one that is still going on.

        Raises:
            RunDirError: a record of the run cannot be read.
        """
        if not self.run.state.is_failure:
            return None
        from aoti_debug.runs.diagnosis.diagnose import diagnose  # reads native stacks; most runs end well

        return diagnose(self.run)

    @cached_property
    def dataflow(self) -> Dataflow:
        """The producers and consumers of the memory that each launch accesses."""
        return Dataflow(self.run)

    def with_rescued_tensors(self) -> DiagnosedRun:
        """The same run with the tensors that were rescued since it was opened, of which its headline may tell more."""
        run = self.run.with_rescued_tensors()
        return self._of(run, self.verdict and _of_launches_of(run, self.verdict))

    def with_info(self, info: RunInfo) -> DiagnosedRun:
        """The same run and verdict, with other contents of run.json that the verdict does not depend on."""
        return self._of(self.run.with_info(info), self.verdict)

    def _of(self, run: RunDir, verdict: Verdict | None) -> DiagnosedRun:
        diagnosed = DiagnosedRun(run)
        vars(diagnosed)["verdict"] = verdict  # fills the cached property
        return diagnosed


def _of_launches_of(run: RunDir, verdict: Verdict) -> Verdict:
    """The verdict in terms of the launches of a newer reading of the same run."""

    def newer(launch: Launch) -> Launch:
        return run.launches.find(launch.key) or launch

    from aoti_debug.runs.diagnosis.verdict_text import headline  # most runs end well

    surfaced = None if verdict.surfaced is None else newer(verdict.surfaced)
    suspects = tuple(map(newer, verdict.suspects))
    sentence = headline(run, verdict.what, verdict.proof, suspects, verdict.why)  # values may be known now
    return replace(verdict, suspects=suspects, surfaced=surfaced, headline=sentence)


def open_diagnosed(name: str | Path | None = None, base: Path | None = None) -> DiagnosedRun:
    """Opens a run (see `run_directory.find`) after rescuing the tensors that its flight recorder holds.

    Raises:
        RunDirError: there is none, or it is damaged or of another version.
    """
    rescued_run, _ = rescued(DiagnosedRun(run_directory.open_run(name, base)))
    return rescued_run


def rescued(diagnosed: DiagnosedRun) -> tuple[DiagnosedRun, Rescue | None]:
    """A run with the tensors that its flight recorder held, and what was rescued: None of a run that has none in it.

    Raises:
        RunDirError: the run cannot be read.
    """
    if shared_files.linked(diagnosed.run.path, shared_files.FLIGHT_RECORDER) is None:
        return diagnosed, None
    from aoti_debug.runs.diagnosis.rescue import rescue_of  # writes tensors; few runs are opened while they hold any

    result = rescue_of(diagnosed.run, diagnosed.verdict)
    return (diagnosed if diagnosed.verdict is None else diagnosed.with_rescued_tensors()), result


def require_end(run: RunDir, model: Path, name: str = "", command: str = "") -> None:
    """Checks that a run of a model has ended well.

    Args:
        model: that the user has named, or the directory of a run of it.
        name: of the run, where there are several; "" for the only one.
        command: that looks into it; "" for the triage of the model with the inputs of the run.

    Raises:
        ModelFaultError: it has not. The error names the launch, as far as it is known, and what looks into it.
        RunDirError: a record of the run cannot be read.
    """
    if run.state is ExitKind.CLEAN:
        return
    from aoti_debug.runs.diagnosis import suggested_commands  # most runs end well

    verdict = DiagnosedRun(run).verdict
    what = wording.first_line(run.info.exit.detail) or run.state.value
    if verdict is not None:
        what = verdict.headline if verdict.launch is None else f"{verdict.launch.id}: {verdict.headline}"
    which = f" ({name})" if name else ""
    package = model if model.suffix == ".pt2" else run.package
    own = suggested_commands.show(run) if package is None else suggested_commands.triage(run, package)
    raise ModelFaultError(f"{model.name} does not end well{which}: {what}", hint=command or own)
