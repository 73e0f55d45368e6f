"""Whether a fault comes again, judged from runs as data: no package runs here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from aoti_debug.base.abi import FaultDomain, Phase, SaveStatus
from aoti_debug.base.errors import TargetError
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from aoti_debug.runs.rundir.timeline import Launch
from aoti_debug.triage.checks import faults
from aoti_debug.triage.investigation.investigation import Suspicion
from aoti_debug.triage.investigation.triage_runs import TriageRuns
from tests import factories

X = factories.tensor(4)
MANIFEST = factories.make_manifest(
    *(factories.site(f"aoti_torch_cpu_op{i}", factories.arg("x"), id_=i) for i in range(2))
)


def run(
    base: Path, name: str, failing: int | None, *, kept: bool = False, skipped: str = "", hangs: bool = False
) -> RunResult:
    """Two launches, one of which reports an error, or does not return, or neither.

    Args:
        kept: the inputs of the launches were saved.
        skipped: the reason why they were not.
    """
    writer = factories.JournalWriter()
    writer.call_begin()
    for number in range(2 if failing is None else failing + 1):
        writer.launch_begin(number, number, X)
        if kept:
            writer.tensor_file(number, 0, Phase.BEFORE, f"tensors/{number}.safetensors", size=16)
        if skipped:
            writer.tensor_file(number, 0, Phase.BEFORE, "", size=16, status=SaveStatus.SKIPPED, reason=skipped)
        if number == failing and hangs:
            break
        if number == failing:
            writer.fault(number, FaultDomain.SHIM, text="it broke")
            writer.launch_end(number, status=-1)
        else:
            writer.launch_end(number)
    ended = Exit(ExitKind.CLEAN) if failing is None else Exit(ExitKind.FAULT, "RuntimeError: it broke")
    ended = Exit(ExitKind.TIMEOUT, "no launch began or ended for 5 s") if hangs else ended
    opened = open_run(factories.run_directory(base, MANIFEST, writer, name=name, exit=ended))
    return RunResult(DiagnosedRun(opened), 1.0, "")


class Replayed:
    """TriageRuns whose runs have been made before."""

    def __init__(self, *results: RunResult | TargetError) -> None:
        self._results = list(results)
        self.asked: list[list[str]] = []

    def tensors(self, launches: Sequence[Launch], environment: Mapping[str, str] | None = None) -> RunResult:
        assert environment == {}  # not on a GPU
        self.asked.append([launch.id for launch in launches])
        result = self._results.pop(0)
        if isinstance(result, TargetError):
            raise result
        return result


def investigate(first: RunResult, *others: RunResult | TargetError) -> tuple[Suspicion, Replayed]:
    runs = Replayed(*others)
    return faults.reproduced(first, cast("TriageRuns", runs), len(others)), runs


def test_the_second_run_has_the_tensors(tmp_path: Path) -> None:
    first, second = run(tmp_path, "first", 1), run(tmp_path, "second", 1)
    case, runs = investigate(first, second)
    assert runs.asked == [["0.1"]]
    assert case.run.path == second.run.path
    assert case.launch is not None
    assert case.launch.id == "0.1"
    assert not any("runs" in line for line in case.finding.evidence)


@pytest.mark.parametrize(("clean", "said"), [(1, "it came in 2 of 3 runs"), (2, "it came in 2 of 4 runs")])
def test_a_fault_that_comes_now_and_then_is_waited_for(tmp_path: Path, clean: int, said: str) -> None:
    quiet = [run(tmp_path, f"quiet{i}", None) for i in range(clean)]
    last = run(tmp_path, "last", 1)
    case, _ = investigate(run(tmp_path, "first", 1), *quiet, last)
    assert case.run.path == last.run.path
    assert case.finding.evidence[-1] == said


def test_a_fault_that_never_comes_again_leaves_the_inputs_of_the_first_run(tmp_path: Path) -> None:
    first = run(tmp_path, "first", 1, kept=True)
    case, runs = investigate(first, *(run(tmp_path, f"quiet{i}", None) for i in range(3)))
    assert len(runs.asked) == 3
    assert case.run.path == first.run.path
    assert case.finding.evidence[-1] == "it came in 1 of 4 runs: the inputs are those of the run in which it came"
    assert case.finding.warnings == ()


def test_a_fault_that_never_comes_again_gets_the_inputs_of_a_run_in_which_the_launch_did_not_fail(
    tmp_path: Path,
) -> None:
    first = run(tmp_path, "first", 1, skipped="larger than AOTI_DEBUG_FLIGHT_BYTES")
    quiet = run(tmp_path, "quiet", None, kept=True)
    elsewhere = run(tmp_path, "elsewhere", 0, kept=True)  # where the launch did not begin
    case, _ = investigate(first, quiet, elsewhere)
    assert (case.run.path, case.with_inputs.run.path) == (first.run.path, quiet.run.path)
    assert case.finding.warnings == ()
    assert case.finding.evidence[-1] == (
        "it came in 1 of 3 runs; the inputs of the repro are those of a run in which this launch did not fail, and "
        "may differ: the run in which it came has not all of them: x before the launch (larger than "
        "AOTI_DEBUG_FLIGHT_BYTES)"
    )


def test_inputs_that_nothing_kept_are_said_to_be_gone(tmp_path: Path) -> None:
    case, _ = investigate(run(tmp_path, "first", 1), run(tmp_path, "quiet", None))
    assert case.finding.warnings == ("the flight recorder kept none of its inputs",)


def test_a_run_that_fails_elsewhere_is_no_repetition(tmp_path: Path) -> None:
    first, other = run(tmp_path, "first", 1, kept=True), run(tmp_path, "other", 0)
    case, _ = investigate(first, other)
    assert case.run.path == first.run.path
    assert any(line.startswith("another run failed in 0.0 aoti_torch_cpu_op0") for line in case.finding.evidence)


def test_a_second_run_that_never_starts_is_told(tmp_path: Path) -> None:
    first = run(tmp_path, "first", 1, kept=True)
    case, _ = investigate(first, TargetError("the model never started: no memory"))
    assert case.run.path == first.run.path
    assert case.finding.warnings == ("the second run: the model never started: no memory",)


def test_a_hang_whose_inputs_were_kept_need_not_come_again(tmp_path: Path) -> None:
    first = run(tmp_path, "first", 1, kept=True, hangs=True)
    case, runs = investigate(first)
    assert runs.asked == []
    assert case.run.path == first.run.path


def test_what_was_too_large_to_be_kept_of_a_hang_is_saved_in_a_second_run(tmp_path: Path) -> None:
    first = run(tmp_path, "first", 1, skipped="larger than AOTI_DEBUG_FLIGHT_BYTES", hangs=True)
    second = run(tmp_path, "second", 1, kept=True, hangs=True)
    case, runs = investigate(first, second)
    assert runs.asked == [["0.1"]]
    assert case.run.path == second.run.path
    assert case.finding.warnings == ()


def test_where_only_the_first_run_has_all_inputs_it_is_taken(tmp_path: Path) -> None:
    first = run(tmp_path, "first", 1, kept=True)
    case, _ = investigate(first, run(tmp_path, "second", 1, skipped="the disk is full"))
    assert case.run.path == first.run.path
    assert case.finding.warnings == (
        "the second run has not all of its inputs, the flight recorder has: x before the launch (the disk is full)",
    )
