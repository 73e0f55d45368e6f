"""The runs of a triage: the same package and inputs, recorded in different ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from aoti_debug import wording
from aoti_debug.machine.steps import Steps
from aoti_debug.run.options import RunOptions
from aoti_debug.run.runner import RunResult, run_with
from aoti_debug.run.supervise import Observer
from aoti_debug.rundir.timeline import Launch
from aoti_debug.triage.options import TriageOptions

FLIGHT = 8  # launches whose inputs the flight recorder keeps
NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # a bad access is less likely to hit another live buffer


class Trials:
    """Runs one package in different ways; the run directories are in `folder`."""

    def __init__(self, package: Path, folder: Path, options: TriageOptions, steps: Steps) -> None:
        self._package = package
        self._folder = folder
        self._options = options
        self._steps = steps

    def names(self) -> RunResult:
        """Level 3 with the flight recorder: names the launch and keeps its inputs, in case the fault is rare."""
        return self._run("run, level 3", level=3, flight=FLIGHT)

    def blocking(self) -> RunResult:
        """Level 3 with a host that waits for every kernel: tells launches on several streams apart."""
        return self._run("run, one launch at a time", level=3, flight=FLIGHT, environment={"CUDA_LAUNCH_BLOCKING": "1"})

    def values(self) -> RunResult:
        """Level 2: statistics of every tensor."""
        return self._run("run, level 2", level=2)

    def tensors(self, launches: Sequence[Launch], environment: Mapping[str, str] | None = None) -> RunResult:
        """Level 1: the tensors of some launches."""
        ids = ",".join(launch.id for launch in launches)
        return self._run("run, level 1", level=1, launch=ids, phase="both", environment=environment or {})

    def all_tensors(self) -> RunResult:
        """Level 1: the tensors of all launches."""
        return self._run("run, level 1, all", level=1, phase="both")

    def guarded_tensors(self, launches: Sequence[Launch]) -> RunResult:
        """Level 1 with guard zones around every buffer: an out-of-bounds write does no damage."""
        ids = ",".join(launch.id for launch in launches)
        return self._run("run, level 1, guards", level=1, launch=ids, phase="both", guards=True)

    def guarded(self) -> RunResult:
        """Level 3 with guard zones around every buffer."""
        return self._run("run, guards", level=3, guards=True)

    def poisoned(self, poison: int) -> RunResult:
        """Level 2 with every new buffer filled with one byte."""
        return self._run(f"run, buffers begin as {poison:02x}", level=2, guards=True, poison=poison)

    def _run(
        self,
        name: str,
        *,
        level: int,
        flight: int | None = None,
        launch: str | None = None,
        phase: str | None = None,
        guards: bool = False,
        poison: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> RunResult:
        options = RunOptions(
            package=self._package,
            inputs=self._options.inputs,
            random_inputs=self._options.random_inputs,
            level=level,
            filters=(),
            modules=(),
            lines=(),
            phase=phase,
            out=self._folder,
            calls=self._options.calls,
            stall=self._options.stall,
            imports=self._options.imports,
            libraries=self._options.libraries,
            launch=launch,
            flight=flight,
            crumb_every=1,
            guards=guards,
            poison=poison,
            model=self._options.name,
            trusted=self._options.trusted,
            environment={**(environment or {}), "AOTI_DEBUG_PRINT": "none"},
        )
        with self._steps.step(name) as note:
            result = run_with(options, Observer())
            note.text = _outcome(result)
            note.timings = result.run.info.timings
        return result


def _outcome(result: RunResult) -> str:
    verdict = result.verdict
    if verdict is None:
        return f"{wording.count(len(result.run.launches), 'launch')}, no fault"
    where = f" in {verdict.launch.id} {verdict.launch.kernel}" if verdict.launch else ""
    return verdict.what.partition("\n")[0] + where
