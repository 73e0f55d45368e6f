"""The triage of core files of real processes: instrumented packages that record, that do not, and plain ones."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.base.machine.steps import OutOfTime
from aoti_debug.base.native import core_file
from aoti_debug.package.manifest import PackageOrigin
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import FAULT, HANG, UNFINISHED, Finding
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.triage import post_mortem
from aoti_debug.triage.investigation.investigation import Outcome
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.post_mortem import triage_core
from aoti_debug.triage.results.triage_directory import TriageDir
from tests import core_files, factories, faulty_ops
from tests.core_files import SmallCore

WHY_NONE = core_files.why_none()
needs_cores = pytest.mark.skipif(bool(WHY_NONE), reason=WHY_NONE or "core files can be made")
HOST = """
import sys, torch
import tests.faulty_ops
torch._inductor.aoti_load_package(sys.argv[1])(torch.linspace(-1, 1, 8).reshape(2, 4))
"""
GDB = ("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no")


def core_of(package: Path, folder: Path, action: str, level: str) -> Path:
    """The core of a Python process that calls a package whose operator ends it."""
    variables = {"FAULTY_OPS": action, "AOTI_DEBUG_LEVEL": level, "AOTI_DEBUG_PRINT": "none"}
    return core_files.core_of([sys.executable, "-c", HOST, str(package)], folder, variables)


@pytest.fixture(scope="module")
def aborted(faulty_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core of a process that was aborted at level 0."""
    return core_of(faulty_package, tmp_path_factory.mktemp("aborted"), "abort", "0")


def triaged(core: Path, package: Path | None, folder: Path) -> TriageDir:
    return triage_core(TriageOptions(core, out=folder / "triages"), package)


def reached(runs: Path) -> bool:
    """Whether the operator of a process that still runs has begun."""
    latest = runs / "latest"
    return (latest / "journal.bin").exists() and "faulty::act.default" in open_run(latest).kernels()


def words(finding: Finding) -> str:
    return "\n".join((finding.what, *finding.evidence, *finding.possible, *finding.warnings))


@needs_cores
def test_a_run_and_the_memory_of_its_process_make_a_repro(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = core_of(faulty_package, tmp_path, "segv", "3")
    monkeypatch.setenv("FAULTY_OPS", "segv")  # for the replay
    done = triaged(core, None, tmp_path)
    finding = done.finding
    assert finding.kind == FAULT
    assert finding.what == "invalid memory access in faulty::act.default"
    assert finding.where is not None
    assert finding.where.launch == "0.2"
    assert finding.where.frame is not None
    assert "torch.ops.faulty.act" in finding.where.frame.text
    assert "the frame of run_impl is at" in words(finding)
    assert "run_impl at wrapper.cpp" in "\n".join(finding.stack)
    assert done.repro is not None
    tensors = sorted((done.repro / "tensors").rglob("*")) if (done.repro / "tensors").exists() else []
    assert any("before" in str(path) for path in (*tensors, *done.runs[0].rglob("*.safetensors")))
    model = faulty_ops.Model().eval()
    read = torch.relu(model.linear(torch.linspace(-1, 1, 8).reshape(2, 4))).detach()
    rescued = json.loads((done.runs[0] / "rescued.json").read_text())["tensors"]
    (bytes_,) = {tensor["bytes"] for tensor in rescued if not tensor["reason"]}
    assert bytes_ == read.numel() * 4
    assert finding.confirmed_by
    assert (finding.signal, finding.address) == ("SIGSEGV", 0)
    assert (findings.to_json(finding)["signal"], findings.to_json(finding)["address"]) == ("SIGSEGV", "0x0")


@needs_cores
def test_an_abort_without_records_is_named_by_its_stack(faulty_package: Path, aborted: Path, tmp_path: Path) -> None:
    finding = triaged(aborted, faulty_package, tmp_path).finding
    assert finding.kind == FAULT
    assert finding.what == "the process was aborted in faulty::act.default"
    assert (finding.signal, finding.address) == ("SIGABRT", None)
    assert finding.where is not None
    assert finding.where.frame is not None
    assert "torch.ops.faulty.act" in finding.where.frame.text
    assert "the package recorded nothing (level 0)" in words(finding)
    assert finding.next
    assert finding.next[0].startswith("AOTI_DEBUG_LEVEL=3 ")


@needs_cores
def test_a_core_belongs_to_one_package(aborted: Path, native_package: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not the package of") as raised:
        triaged(aborted, native_package, tmp_path)
    assert raised.value.hint
    with pytest.raises(UsageError, match=r"the package of .* is not known: the process had loaded .*wrapper\.so"):
        triaged(aborted, None, tmp_path)
    assert not (tmp_path / "triages").exists()


def test_a_core_of_something_else_names_no_package(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="shows no package that the process had loaded") as raised:
        triaged(SmallCore().write(tmp_path / "core"), None, tmp_path)
    assert raised.value.hint == "--package MODEL.pt2 names the package, if it had one"


def test_a_core_is_read_within_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(_: Path) -> bool:
        raise OutOfTime

    monkeypatch.setattr(core_file, "is_gpu_core", late)
    options = TriageOptions(tmp_path / "core", out=tmp_path / "triages", time_limit=8.0)
    finding = triage_core(options, Path("model.pt2")).finding
    assert finding.kind == UNFINISHED
    assert "the core file was not read to its end" in finding.what
    assert finding.next == (f"aoti-debug triage {tmp_path}/core --package model.pt2 --time-limit 32",)


@needs_cores
def test_a_core_that_was_written_while_the_process_ran(faulty_package: Path, tmp_path: Path) -> None:
    variables = {"FAULTY_OPS": "hang", "AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_PRINT": "none"}
    command = [sys.executable, "-c", HOST, str(faulty_package)]
    with core_files.running(command, tmp_path, variables) as host:
        while not reached(tmp_path / "aoti-debug/runs"):
            assert host.poll() is None
            time.sleep(0.1)
        line = [*GDB, "-p", str(host.pid), "-ex", f"generate-core-file {tmp_path / 'core'}", "-ex", "detach"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
    if "not permitted" in done.stderr:
        pytest.skip("gdb may not trace a process here")
    finding = triaged(tmp_path / "core", None, tmp_path).finding
    assert finding.kind == HANG
    assert "may hang" in finding.what
    assert (finding.signal, finding.address) == ("", None)
    assert finding.where is not None
    assert finding.where.launch == "0.2"
    assert "the core was written while the process ran: no signal ended it" in words(finding)


@pytest.mark.parametrize(
    ("source", "exported", "is_said"),
    [
        (PackageOrigin.COMPILED, Path("program.pt2"), True),
        (PackageOrigin.COMPILED, None, False),
        (PackageOrigin.EXPORTED, Path("program.pt2"), False),
    ],
)
def test_a_program_that_has_told_no_model_lines_is_said(
    source: PackageOrigin, exported: Path | None, is_said: bool
) -> None:
    manifest = replace(factories.make_manifest(), source=source)
    found = post_mortem._with_remark(Outcome(Finding(FAULT, "it crashed"), None), manifest, exported)
    assert ["--inductor-config" in said for said in found.finding.warnings] == [True] * is_said
