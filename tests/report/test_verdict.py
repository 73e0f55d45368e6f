from __future__ import annotations

from pathlib import Path

from factories import JournalWriter, crumbs, run_directory, tensor
from subjects import manifest, run

from aoti_debug.abi import FaultDomain
from aoti_debug.diagnosis.findings import FindingKind
from aoti_debug.report.verdict import finding_of
from aoti_debug.rundir.run_directory import RunDir, open_run
from aoti_debug.rundir.run_json import Exit, ExitKind, Stage


def test_a_fault_names_its_launch(tmp_path: Path) -> None:
    found = finding_of(run(tmp_path))
    assert (found.kind, found.where and found.where.launch) == (FindingKind.FAULT, "0.1")
    assert found.what == "index 314159 is out of bounds with size 4"
    assert found.evidence == ("an exception left it",)
    assert found.next[0].startswith("aoti-debug repro aoti_torch_cpu_index_Tensor --launch 0.1")


def test_a_clean_run(tmp_path: Path) -> None:
    found = finding_of(run(tmp_path, fault=False))
    assert (found.kind, found.what, found.where) == (FindingKind.CLEAN, "3 launches, no fault", None)


def test_a_hang_and_several_suspects(tmp_path: Path) -> None:
    package = manifest()
    package = type(package)(**{**vars(package), "device": "cuda"})
    writer = JournalWriter(crumb_every=4)
    writer.call_begin()
    on_device = tensor(4, device="cuda:0", data_ptr=0x7F00)
    for launch in range(3):
        writer.launch(launch, 0, on_device, on_device)
    writer.fault(2, FaultDomain.CUDA, 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
    end = Exit(ExitKind.FAULT, "RuntimeError: x", Stage.CALL, exception="RuntimeError")
    opened = open_run(run_directory(tmp_path, package, writer, exit=end, crumbs=crumbs(0, every=4)))
    found = finding_of(opened)
    assert found.where is None
    assert any(sentence.startswith("one of 3 launches: 0.0 cpp_fused_mul_0, 0.1") for sentence in found.evidence)
    timeout = Exit(ExitKind.TIMEOUT, "60 s")
    assert finding_of(run_with(tmp_path / "b", timeout)).kind is FindingKind.HANG


def run_with(base: Path, end: Exit) -> RunDir:
    writer = JournalWriter()
    writer.call_begin()
    writer.launch_begin(0, 0, tensor(4), tensor(4))
    return open_run(run_directory(base, manifest(), writer, exit=end))
