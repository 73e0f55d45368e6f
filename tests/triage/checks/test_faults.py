"""Whether a fault comes again, judged from runs as data: no package runs here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aoti_debug.base.abi import FaultDomain, Phase, SaveStatus
from aoti_debug.base.errors import TargetError
from aoti_debug.base.machine.steps import Steps
from aoti_debug.repro.run_repro import Evidence, Mode
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import FAULT, HANG, Finding, Place
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import GPU_CORE, open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from aoti_debug.triage.checks import faults
from aoti_debug.triage.investigation import confirm_by_repro, gpu_core
from aoti_debug.triage.investigation.confirm_by_repro import Confirmation, ReproTrial
from aoti_debug.triage.investigation.investigation import Investigation, Suspicion
from aoti_debug.triage.investigation.triage_runs import NO_CACHING, TriageOptions, TriageRuns
from tests import factories
from tests.paths import ROOT

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


# Core dumps of a GPU


def on_gpu(base: Path, name: str, *, code: int | None = 700, dumped: bool = False) -> RunResult:
    """A run in which a kernel failed on a GPU, or that ended well; with a file where the driver writes its dump."""
    manifest = factories.make_manifest(factories.site("kernel", factories.arg("x")), device="cuda")
    writer = factories.JournalWriter()
    writer.call_begin()
    writer.launch(0, 0, X)
    ended = Exit(ExitKind.CLEAN) if code is None else Exit(ExitKind.FAULT, "RuntimeError: it broke", code=code)
    opened = open_run(factories.run_directory(base, manifest, writer, name=name, exit=ended))
    if dumped:
        (opened.path / GPU_CORE).write_bytes(b"a dump")
    return RunResult(DiagnosedRun(opened), 1.0, "")


class DumpingRuns:
    """TriageRuns whose runs with a core dump have been made before."""

    def __init__(self, *results: RunResult) -> None:
        self._results = list(results)
        self.environments: list[Mapping[str, str]] = []

    def with_gpu_core(self, environment: Mapping[str, str]) -> RunResult:
        self.environments.append(environment)
        return self._results.pop(0)


def confirmed(
    monkeypatch: pytest.MonkeyPatch,
    first: RunResult,
    *others: RunResult,
    reader: str | None = "/bin/cuda-gdb",
    again: RunResult | None = None,
) -> tuple[Finding, DumpingRuns]:
    """The finding of a fault of which no launch can be named.

    Args:
        again: the run that shows the fault, if it is not the first one.
    """
    runs = DumpingRuns(*others)
    printed = (ROOT / "tests/golden/cuda_gdb/illegal_address.txt").read_text()
    monkeypatch.setattr(faults, "find_program", lambda _: reader and Path(reader))
    monkeypatch.setattr(gpu_core, "read", lambda _: gpu_core.parse(printed))
    investigation = cast("Investigation", SimpleNamespace(first=first, runs=runs, steps=Steps(None)))
    suspicion = Suspicion(Finding(FAULT, "it broke"), (again or first).diagnosed)
    return faults.FAULT_CHECK.confirm(investigation, suspicion).finding, runs


def test_a_fault_that_no_repro_shows_gets_the_core_dump_of_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, runs = confirmed(monkeypatch, on_gpu(tmp_path, "first"), on_gpu(tmp_path, "second", dumped=True))
    assert runs.environments == [{}]
    assert found.evidence[0].startswith("cuda-gdb: Warp Illegal Address in lookup_kernel at ")
    assert "it shows block (100,0,0), thread (0,0,0)" in found.evidence


def test_an_operator_reports_the_error_of_the_device_in_words_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later run may notice it in an operator of torch, whose error has no code of the driver."""
    first, again = on_gpu(tmp_path, "first"), on_gpu(tmp_path, "again", code=1)
    _, runs = confirmed(monkeypatch, first, on_gpu(tmp_path, "third", dumped=True), again=again)
    assert runs.environments == [{}]


def test_a_fault_that_does_not_come_again_has_no_core_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = [on_gpu(tmp_path, name, code=None) for name in ("second", "third")]
    found, runs = confirmed(monkeypatch, on_gpu(tmp_path, "first"), *quiet)
    assert runs.environments == [{}, NO_CACHING]
    assert found.evidence == (
        "it did not come again in 2 runs in which the driver would have written a core dump of the GPU",
    )


def test_a_driver_that_writes_no_dump_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = confirmed(monkeypatch, on_gpu(tmp_path, "first"), on_gpu(tmp_path, "second"))
    assert found.warnings == ("the driver wrote no core dump of the GPU in a run that ended in a fault, too",)


def test_without_cuda_gdb_nothing_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, runs = confirmed(monkeypatch, on_gpu(tmp_path, "first"), reader=None)
    assert runs.environments == []
    assert found.warnings == ("cuda-gdb was not found, which would read a core dump of the GPU",)


def test_a_fault_of_the_host_needs_no_core_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, runs = confirmed(monkeypatch, on_gpu(tmp_path, "first", code=1))
    assert runs.environments == []
    assert (found.evidence, found.warnings) == ((), ())


@pytest.mark.parametrize(("returned", "dumped"), [(True, True), (False, False)])
def test_a_kernel_that_hangs_gets_a_core_dump_and_a_host_that_hangs_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returned: bool, dumped: bool
) -> None:
    manifest = factories.make_manifest(factories.site("kernel", factories.arg("x")), device="cuda")
    writer = factories.JournalWriter()
    writer.call_begin()
    writer.launch_begin(0, 0, X)
    if returned:
        writer.launch_end(0)
    ended = Exit(ExitKind.TIMEOUT, "no progress for 5 s")
    first = open_run(factories.run_directory(tmp_path, manifest, writer, name="first", exit=ended))
    runs = DumpingRuns(on_gpu(tmp_path, "second", dumped=True))
    text = "#0  0x7f00 in kernel<<<(16,1,1),(128,1,1)>>> () at kernel.py:31\n"
    monkeypatch.setattr(faults, "find_program", lambda _: Path("/bin/cuda-gdb"))
    monkeypatch.setattr(gpu_core, "read", lambda _: gpu_core.parse(text))
    monkeypatch.setattr(confirm_by_repro, "confirm", lambda *_: Confirmation(None, (), ()))
    investigation = cast(
        "Investigation",
        SimpleNamespace(
            first=RunResult(DiagnosedRun(first), 1.0, ""),
            runs=runs,
            steps=Steps(None),
            options=SimpleNamespace(stall=5.0),
        ),
    )
    suspicion = Suspicion(Finding(HANG, "it hangs", Place("0.0", "kernel")), DiagnosedRun(first))
    found = faults.HANG_CHECK.confirm(investigation, suspicion).finding
    said = "cuda-gdb: the warp that it shows was in kernel at kernel.py:31"
    assert (said in found.evidence) == dumped
    assert runs.environments == ([{}] if dumped else [])


_CRASH = Finding(FAULT, "invalid memory access in k")
_QUIET = replace(_CRASH, contradicted_by=("operator: it reproduces the recorded values",), next=("python repro.py",))
_ALONE = replace(_QUIET, contradicted_by=())  # its launch cannot be replayed
_SHOWN = replace(_QUIET, confirmed_by=("native: SIGSEGV",))


@pytest.mark.parametrize(
    ("replayed", "guards", "signal", "further", "of_cpu"),
    [
        (_QUIET, False, "SIGSEGV", ("aoti-debug triage model.pt2 --guards",), False),
        (_QUIET, True, "SIGILL", (), True),
        (_SHOWN, False, "SIGILL", (), True),
        (_ALONE, False, "SIGILL", (), True),
        (_SHOWN, False, "SIGSEGV", (), False),
    ],
)
def test_a_fault_that_its_replay_contradicts_names_the_triage_that_looks_for_damage(
    monkeypatch: pytest.MonkeyPatch,
    replayed: Finding,
    guards: bool,
    signal: str,
    further: tuple[str, ...],
    of_cpu: bool,
) -> None:
    monkeypatch.setattr(confirm_by_repro, "confirm", lambda *_: SimpleNamespace(evidence=()))
    monkeypatch.setattr(confirm_by_repro, "of_fault", lambda *_: replayed)
    monkeypatch.setattr(faults, "_with_gpu_core", lambda _, finding, __: finding)
    monkeypatch.setattr(faults, "explain", lambda finding, *_: finding)
    monkeypatch.setattr(faults, "with_graph", lambda _, finding, *__: finding)
    info = SimpleNamespace(exit=SimpleNamespace(signal=signal))
    manifest = factories.make_manifest()
    run: Any = SimpleNamespace(manifest=manifest, can_be_repeated=False, launch=lambda _: None, info=info)
    source = SimpleNamespace(run=run)
    diagnosed = SimpleNamespace(dataflow=None)
    launch = SimpleNamespace(id="0.0")
    suspicion: Any = SimpleNamespace(launch=launch, finding=_CRASH, run=run, with_inputs=source, diagnosed=diagnosed)
    investigation: Any = SimpleNamespace(options=TriageOptions(Path("model.pt2"), guards=guards))
    found = faults._confirm_fault(investigation, suspicion).finding
    assert found.next == ("python repro.py", *further)
    assert [" may have been compiled for another CPU" in said for said in found.possible] == [True] * of_cpu
    assert [said.endswith("does not stop there") for said in found.possible] == [replayed == _QUIET] * of_cpu


OWN_OPERATORS = factories.make_manifest(
    *(
        factories.site(name, factories.arg("x"), id_=i)
        for i, name in enumerate(("cpp_0", "mine::a", "mkldnn::b", "mine::c"))
    )
)


@pytest.mark.parametrize(
    ("faults_alone", "where"),
    [
        (("SIGABRT",), "0.1"),
        (("", "SIGSEGV"), "0.3"),
        (("RuntimeError: it has no context", "SIGSEGV"), "0.3"),
        (("", ""), ""),
    ],
)
def test_an_operator_of_ones_own_that_crashes_alone_has_damaged_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults_alone: tuple[str, ...], where: str
) -> None:
    """After a crash in no launch: no guard sees what such an operator writes around its own tensors."""
    writer = factories.JournalWriter()
    writer.call_begin()
    for number in range(4):
        writer.launch(number, number, X)
    ended = Exit(ExitKind.ABORTED, "SIGABRT", signal="SIGABRT")
    opened = open_run(factories.run_directory(tmp_path, OWN_OPERATORS, writer, name="dead", exit=ended))
    result = RunResult(DiagnosedRun(opened), 1.0, "")
    left = list(faults_alone)
    written: list[str] = []

    def write(_: DiagnosedRun, launch: Launch, folder: Path, __: Steps, fault: str) -> tuple[Path, str]:
        assert fault == "SIGABRT of the process, after it had returned"
        written.append(f"{launch.id} {folder.name}")
        return folder, ""

    def replayed(repro: Path, _: Steps) -> Confirmation:
        fault = left.pop(0)
        outcome = "fault" if fault else "as recorded"
        evidence = Evidence(repro.name, "operator", "repeat", "", outcome, 11, fault, (), ())
        return Confirmation(repro, (ReproTrial(Mode("operator, 20 times", ()), evidence, 1.0),), ())

    monkeypatch.setattr(confirm_by_repro, "write", write)
    monkeypatch.setattr(confirm_by_repro, "run_repeatedly", replayed)
    runs = SimpleNamespace(tensors=lambda _: result)
    investigation: Any = SimpleNamespace(runs=runs, repro=tmp_path / "repro", steps=Steps(None))
    finding = faults._of_own_operators(investigation, Finding(FAULT, "the process was aborted"), opened).finding
    assert written == ["0.1 repro", "0.3 repro1"][: len(faults_alone)]
    assert (finding.where.launch if finding.where else "") == where
    assert bool(finding.confirmed_by) == bool(where)
    assert [command.endswith("repro.py --repeat 20") for command in finding.next] == [True] * bool(where)
    (said,) = finding.possible
    assert said.startswith("mine::a, mine::c may have damaged " if not where else "alone, it may lack ")
