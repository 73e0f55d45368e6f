"""The procedure of a triage over runs that a test makes up: no package is built, no process starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from aoti_debug.base.machine.compiler import find_torch
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import OutOfTime, Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import compare_kernels
from aoti_debug.instrument.builder.build import BuildSummary
from aoti_debug.instrument.wrapper import model_variables
from aoti_debug.package.inputs.signature import ModelSignature
from aoti_debug.package.pt2 import archive
from aoti_debug.repro.run_repro import Evidence, Mode
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.findings import CLEAN, FAULT, INCOMPLETE, UNFINISHED, Finding, FindingKind, place_of
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from aoti_debug.runs.show.finding import finding_lines
from aoti_debug.triage import session
from aoti_debug.triage.build_failures.build_without import BuiltWithout
from aoti_debug.triage.investigation import confirm_by_repro
from aoti_debug.triage.investigation.confirm_by_repro import Confirmation, ReproTrial
from aoti_debug.triage.investigation.investigation import Check, Investigation, Outcome, SoFar, Suspicion
from aoti_debug.triage.investigation.triage_runs import TriageOptions, TriageRuns
from aoti_debug.triage.results import finding_kinds, triage_directory
from aoti_debug.triage.results.triage_directory import TriageDir
from aoti_debug.triage.session import triage
from aoti_debug.views.report import report
from tests import archives, factories, opened_runs
from tests.triage.recorder import Recorder
from tests.unpacked_archive import COMMANDS, KERNELS, WRAPPER

Story = Callable[[Recorder, int], None]  # of a model whose fresh buffers begin with some byte
NAN = float("nan")
SAME = ReproTrial(Mode("operator", ()), Evidence("0.0 k", "", "", "", "as recorded", 0, "", (), ()), 1.0)


class Told:
    """TriageRuns that tell one story again and again, each time in a run directory of its own."""

    def __init__(self, story: Story, folder: Path) -> None:
        self._story = story
        self._folder = folder
        self.made: list[str] = []
        self.opened: dict[Path, RunDir] = {}

    def names(self) -> RunResult:
        return self._run("names")

    def values(self) -> RunResult:
        return self._run("values")

    def tensors(self, launches: Sequence[Launch], environment: Mapping[str, str] | None = None) -> RunResult:
        return self._run("tensors", save=True)

    def guarded(self) -> RunResult:
        return self._run("guarded")

    def poisoned(self, poison: int) -> RunResult:
        return self._run("poisoned", poison)

    @property
    def has_begun_ahead(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def _run(self, name: str, poison: int | None = None, *, save: bool = False) -> RunResult:
        self.made.append(name)
        base = self._folder / str(len(self.made))
        recorder = Recorder(base, inputs=("arg0",), outputs=("buf9",), save=save)
        recorder.journal.call_begin()
        self._story(recorder, 0 if poison is None else poison)
        path = recorder.write(name=f"run-{len(self.made)}", guards=poison is not None, poison=poison)
        self.opened[path] = open_run(path)
        return RunResult(DiagnosedRun(self.opened[path]), 1.0, "")


@pytest.fixture
def triaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[TriageDir, Told]]:
    """Triages a story; every repro reproduces the recorded values."""

    def triaged(story: Story, *, guards: bool = False, notes: tuple[str, ...] = ()) -> tuple[TriageDir, Told]:
        told = Told(story, tmp_path / story.__name__)
        monkeypatch.setattr(session, "_package", lambda *_: BuiltWithout(None, (), "", notes))
        monkeypatch.setattr(session, "TriageRuns", lambda *_: told)
        monkeypatch.setattr(confirm_by_repro, "run", lambda repro, *_: Confirmation(repro, (SAME,), ()))
        options = TriageOptions(tmp_path / "model.pt2", out=tmp_path / "triages", guards=guards)
        return triage(options), told

    return triaged


def root(recorder: Recorder, value: torch.Tensor) -> None:
    changes = {"buf9": (torch.zeros_like(value), value.sqrt())}
    params = {"arg0": "self", "buf9": "out"}
    recorder.launch("aoti_torch_cpu_sqrt_out", {"arg0": value}, {}, changes=changes, op="aten.sqrt.out", params=params)


def of_negative(recorder: Recorder, poison: int) -> None:
    root(recorder, torch.tensor([-1.0, 4.0]))


def of_positive(recorder: Recorder, poison: int) -> None:
    root(recorder, torch.tensor([1.0, 4.0]))


def of_unwritten(recorder: Recorder, poison: int) -> None:
    fresh = torch.full((8,), poison, dtype=torch.uint8).view(torch.float32).clone()
    rows = torch.cat([torch.ones(6), fresh])
    recorder.launch("fill", {"arg0": torch.ones(8)}, {"buf0": rows})
    params = {"buf0": "self", "buf9": "out"}
    recorder.launch("aoti_torch_cpu_cos_out", {"buf0": rows}, {"buf9": rows.cos()}, op="aten.cos.out", params=params)


@pytest.mark.parametrize(("value", "noted"), [(4.0, True), (-4.0, False)])
def test_kernels_that_were_kept_apart_are_noted_where_nothing_was_found(
    triaged: Callable[..., tuple[TriageDir, Told]], value: float, noted: bool
) -> None:
    def of_kernels_that_overlap(recorder: Recorder, poison: int) -> None:
        recorder.kernels = (replace(factories.triton_kernel("b"), overlaps=True),)
        root(recorder, torch.tensor([value]))

    found, _ = triaged(of_kernels_that_overlap)
    note = "1 kernel may begin before the one before ends; while launches are recorded they may not, and a race between"
    assert [warning.startswith(note) for warning in found.finding.warnings] == [True] * noted


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({}, ""),
        ({"max_autotune": False, "freezing": True}, ""),
        (
            {"max_autotune": True},
            "max_autotune lets torch choose kernels by the time that each takes: another build",
        ),
        (
            {"max_autotune_gemm": True, "coordinate_descent_tuning": True},
            "max_autotune_gemm, coordinate_descent_tuning let",
        ),
    ],
)
def test_kernels_that_were_chosen_by_their_times_are_noted_where_nothing_was_found(
    configs: dict[str, Any], said: str
) -> None:
    options = TriageOptions(Path("model.pt2"), inductor_configs=configs)
    found = session._with_remarks(Outcome(Finding(CLEAN, "2 launches"), None), options).finding
    assert [warning.startswith(said) for warning in found.warnings] == [True] * bool(said)


def test_nan_is_found_and_confirmed(triaged: Callable[..., tuple[TriageDir, Told]]) -> None:
    found, told = triaged(of_negative)
    assert told.made == ["names", "values", "tensors"]
    assert (found.finding.kind.value, found.finding.what) == ("nonfinite", "NaN in buf9")
    assert found.finding.confirmed_by == ("operator: it reproduces the recorded values",)
    assert found.repro == found.path / "repro"


def test_a_clean_model(triaged: Callable[..., tuple[TriageDir, Told]], tmp_path: Path) -> None:
    found, told = triaged(of_positive)
    assert told.made == ["names", "values"]
    what = "0 of 1 launch; not compared: a run whose package is gone"
    seen = "1 launch in 1 call: no fault, values of outputs not recorded"
    deeper = f"aoti-debug triage {tmp_path / 'model.pt2'} --guards"
    assert found.finding == Finding(INCOMPLETE, what, evidence=(seen,), next=(deeper,))


def test_what_failed_once_in_the_build_is_told(triaged: Callable[..., tuple[TriageDir, Told]]) -> None:
    found, _ = triaged(of_positive, notes=("the build failed once: SIGKILL",))
    assert found.finding.kind == INCOMPLETE
    assert found.finding.warnings == ("the build failed once: SIGKILL",)


def test_a_fork_server_that_does_not_serve_is_told(
    triaged: Callable[..., tuple[TriageDir, Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = SimpleNamespace(preload=lambda: None, failure="the module ops starts 2 threads when it is imported")
    monkeypatch.setattr(python_process, "forking_from", lambda *_: nullcontext(server))
    found, _ = triaged(of_positive)
    assert found.finding.kind is INCOMPLETE
    assert (found.record.steps[-1].name, found.record.steps[-1].text) == (
        "fork server",
        "new processes were started instead: the module ops starts 2 threads when it is imported",
    )


def test_a_run_is_opened_diagnosed_and_followed_once(
    triaged: Callable[..., tuple[TriageDir, Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = opened_runs.counted(monkeypatch)
    found, told = triaged(of_negative)
    assert found.repro is not None
    assert counts.opened == {f"run-{number}": 1 for number in (1, 2, 3)}
    assert counts.journals == counts.opened
    assert counts.diagnosed == counts.opened
    assert counts.dataflows == {"run-1": 1, "run-2": 1, "run-3": 1}
    assert told.made == ["names", "values", "tensors"]
    assert {path.name for path in found.opened} == {"run-1", "run-2", "run-3"}  # a report reads none of them again


def test_with_guards_too(triaged: Callable[..., tuple[TriageDir, Told]], monkeypatch: pytest.MonkeyPatch) -> None:
    counts = opened_runs.counted(monkeypatch)
    found, told = triaged(of_unwritten, guards=True)
    assert told.made == ["names", "guarded", "poisoned", "poisoned", "poisoned", "tensors"]
    assert (found.finding.kind.value, found.finding.where and found.finding.where.launch) == ("uninitialised", "0.1")
    assert set(counts.opened.values()) == {1}
    assert set(counts.diagnosed.values()) == {1}
    assert counts.dataflows == {"run-1": 1, "run-3": 1}


def test_a_first_run_that_faulted_is_told_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object) -> Outcome:
        raise OutOfTime

    writer = factories.JournalWriter()
    writer.call_begin()
    writer.launch_begin(0, 0)
    ended = Exit(ExitKind.FAULT, "SIGSEGV", signal="SIGSEGV")
    manifest = factories.make_manifest(factories.site("kernel"))
    first = DiagnosedRun(open_run(factories.run_directory(tmp_path, manifest, writer, exit=ended)))
    monkeypatch.setattr(session, "_checked", late)
    runs = cast("TriageRuns", SimpleNamespace(names=lambda: RunResult(first, 1.0, "")))
    options, so_far = TriageOptions(tmp_path / "model.pt2"), SoFar()
    with pytest.raises(OutOfTime):
        session._outcome(options, runs, Steps(), tmp_path, so_far)
    found = so_far.outcome(options, Steps()).finding
    assert (found.kind, found.where and found.where.launch) == (FAULT, "0.0")
    assert found.warnings[-1].startswith("not confirmed: ended after 9 min 0 s")


def test_what_the_build_has_shown_is_told_when_the_time_is_over(
    triaged: Callable[..., tuple[TriageDir, Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(_: Investigation) -> Suspicion:
        raise OutOfTime

    monkeypatch.setattr(session, "CHECKS", (Check(SLOW, late, confirm_slow), *session.CHECKS))
    found, told = triaged(of_positive, notes=("the build failed once: SIGKILL",))
    assert told.made == ["names"]
    assert found.finding.kind == UNFINISHED
    assert found.finding.warnings[-1] == "the build failed once: SIGKILL"
    assert triage_directory.open_triage(found.path).finding == found.finding


def test_a_check_that_is_done_is_told_when_the_time_is_over(
    triaged: Callable[..., tuple[TriageDir, Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfinished(investigation: Investigation) -> Suspicion:
        open_ = Finding(INCOMPLETE, "1 launch was not compared", warnings=("it has no reference",))
        return Suspicion(open_, investigation.first.diagnosed)

    def late(_: Investigation) -> Suspicion:
        raise OutOfTime

    checks = (Check(SLOW, unfinished, confirm_slow), Check(SLOW, late, confirm_slow))
    monkeypatch.setattr(session, "CHECKS", checks)
    found, _ = triaged(of_positive)
    assert found.finding.kind == UNFINISHED
    assert "; 1 launch was not compared; ended after" in found.finding.what
    assert "it has no reference" in found.finding.warnings


def test_races_are_looked_for_within_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(_: Path) -> None:
        raise OutOfTime

    monkeypatch.setattr(archive, "inspect", late)
    found = session.triage_races(TriageOptions(tmp_path / "model.pt2", out=tmp_path / "triages", time_limit=8.0))
    assert found.finding.kind == UNFINISHED
    assert "the generated code was not read to its end" in found.finding.what
    assert found.finding.next == (f"aoti-debug triage {tmp_path}/model.pt2 --races --time-limit 32",)


def test_a_search_for_races_of_threads_that_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(_: Path) -> None:
        raise OutOfTime

    monkeypatch.setattr(archive, "inspect", late)
    options = TriageOptions(tmp_path / "model.pt2", out=tmp_path / "triages", time_limit=8.0, threads=2)
    found = session.triage_races(options)
    assert found.finding.what.endswith("; races were not looked for to the end")
    assert found.finding.next == (f"aoti-debug triage {tmp_path}/model.pt2 --threads 2 --races --time-limit 32",)


# ---- a kind of finding is one module


SLOW = FindingKind("slow", "a launch took too long", "TOO SLOW", "too slow", "⌛")


def look(investigation: Investigation) -> Suspicion | None:
    first = investigation.first
    launch = max(first.run.launches, key=lambda launch: (launch.end_ns or 0) - launch.begin_ns)
    found = Finding(SLOW, f"{launch.kernel} takes long", place_of(launch), ("the longest of all launches",))
    return Suspicion(found, first.diagnosed)


def confirm_slow(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    return confirm_by_repro.same_values(investigation, suspicion)


def test_a_new_kind_needs_its_module_and_a_place_in_the_list(
    triaged: Callable[..., tuple[TriageDir, Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CHECKS", (Check(SLOW, look, confirm_slow), *session.CHECKS))
    monkeypatch.setattr(finding_kinds, "KINDS", (*finding_kinds.KINDS, SLOW))
    found, told = triaged(of_negative)
    assert told.made == ["names", "tensors"], "it looks before those that need more runs"
    assert found.finding.kind is SLOW
    assert found.finding.confirmed_by == ("operator: it reproduces the recorded values",)
    assert triage_directory.open_triage(found.path).finding == found.finding
    assert finding_lines(found.finding, 80)[0] == "TOO SLOW aoti_torch_cpu_sqrt_out takes long"
    assert "⌛</span> too slow</p>" in report.html(report.of_triage(found))


def test_warnings_of_a_new_kind_are_told_with_whatever_is_found(
    triaged: Callable[..., tuple[TriageDir, Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn(investigation: Investigation) -> Suspicion:
        return Suspicion(Finding(CLEAN, "", warnings=("one launch is slow",)), investigation.first.diagnosed)

    monkeypatch.setattr(session, "CHECKS", (Check(SLOW, warn, confirm_slow), *session.CHECKS))
    assert triaged(of_positive)[0].finding.warnings == ("one launch is slow",)
    assert triaged(of_negative)[0].finding.warnings == ("one launch is slow",)


CLEAN_FINDING = Finding(CLEAN, "nothing", next=("look",), warnings=("a note",))
INPUT = 'inputs_info_[0].name = "arg1_1";\n'
WEIGHT = 'constants_info_[0].original_fqn = "w";\nconstants_info_[0].shape = {2};\n'
OTHER = KERNELS.replace("{\n}", "{ *in_out_ptr0 = 1; }")


def package(path: Path, variables: str = INPUT + WEIGHT, kernels: str = KERNELS, age: int = 0) -> Path:
    text = "class AOTInductorModel;\n" + variables + WRAPPER + COMMANDS
    members = {f"{archives.MODEL}c1.wrapper.cpp": text.encode(), f"{archives.MODEL}c2.kernel.cpp": kernels.encode()}
    archives.write(path, {**members, **archives.PACKAGE})
    os.utime(path, (10_000 - age, 10_000 - age))
    return path


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return archives.write(tmp_path / "models" / "program.pt2", archives.PROGRAM)


def summary(path: Path, variables: str = INPUT + WEIGHT) -> BuildSummary:
    """Of a package with the kernels of KERNELS."""
    like = archive.inspect(package(path / "like.pt2", variables))
    (path / "unpacked").mkdir()
    kernels = compare_kernels.read_kernels(like, "model", path / "unpacked", find_torch())
    names, weights = model_variables.inputs(variables), model_variables.constants(variables)
    manifest = replace(factories.make_manifest(), inputs=names, constants=weights)
    return BuildSummary(path, manifest, 0, 0.0, {}, "", (), ModelSignature(()), kernels=kernels)


def test_the_newest_package_of_the_program_is_compared(program: Path, tmp_path: Path) -> None:
    package(program.with_name("old.pt2"), kernels=OTHER, age=5)
    package(program.with_name("new.pt2"), age=3)
    package(program.with_name("of another.pt2"), INPUT.replace("arg1_1", "arg9_1") + WEIGHT, OTHER)
    program.with_name("damaged.pt2").write_bytes(b"PK")
    program.with_name("folder.pt2").mkdir()
    found = session.with_remark(CLEAN_FINDING, TriageOptions(program), summary(tmp_path))
    assert found.warnings == ("a note", "1 of 1 kernels identical to those of new.pt2")
    assert (found.what, found.next) == (CLEAN_FINDING.what, CLEAN_FINDING.next)


def test_other_kernels_are_named_with_what_to_do(program: Path, tmp_path: Path) -> None:
    other = package(program.with_name("their own.pt2"), kernels=OTHER)
    built = summary(tmp_path)
    found = session.with_remark(CLEAN_FINDING, TriageOptions(program), built)
    assert found.warnings == (
        "a note",
        "0 of 1 kernels identical to those of their own.pt2 (cpp_fused_relu_0: its source differs)",
    )
    their_triage = f"aoti-debug triage '{other}' --exported {program}"
    assert found.next == (their_triage, f"aoti-debug diff {program} '{other}'", "look")
    assert found.what == "their own.pt2, which lies beside the program with other kernels, was not run; nothing"
    fault = session.with_remark(replace(CLEAN_FINDING, kind=FAULT), TriageOptions(program), built)
    assert (fault.what, fault.next) == ("nothing", ("look", their_triage))


def test_what_to_do_is_done_with_the_inputs_of_the_triage(program: Path, tmp_path: Path) -> None:
    other, built = package(program.with_name("own.pt2"), kernels=OTHER), summary(tmp_path)
    options = TriageOptions(program, inputs=Path("x.pt"), calls=3, user_code=UserCode(("ops",)))
    calling = "--inputs x.pt --import ops --calls 3"
    their_triage = f"aoti-debug triage {other} --exported {program} {calling}"
    found = session.with_remark(CLEAN_FINDING, options, built)
    assert found.next == (their_triage, f"aoti-debug diff {program} {other} {calling}", "look")
    of_random = session.with_remark(CLEAN_FINDING, TriageOptions(program, random_inputs=0), built)
    assert "diff" not in " ".join(of_random.next)


def test_a_package_without_common_weights_and_kernels_is_of_another_program(program: Path, tmp_path: Path) -> None:
    package(program.with_name("other.pt2"), INPUT, OTHER)
    assert session.with_remark(CLEAN_FINDING, TriageOptions(program), summary(tmp_path, INPUT)) == CLEAN_FINDING


def test_nothing_lies_beside_the_program(program: Path, tmp_path: Path) -> None:
    assert session.with_remark(CLEAN_FINDING, TriageOptions(program), summary(tmp_path)) == CLEAN_FINDING
