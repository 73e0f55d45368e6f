"""Core dumps that the CUDA driver writes of a kernel that fails or never ends, and what cuda-gdb tells of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.repro.templates.sanitizers import find_cuda_program
from aoti_debug.runs.diagnosis.findings import FAULT, HANG, Finding
from aoti_debug.runs.diagnosis.verdict import Proof
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.rundir.run_directory import GPU_CORE
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.triage import session
from aoti_debug.triage.investigation import confirm_by_repro, gpu_access, gpu_core
from aoti_debug.triage.investigation.confirm_by_repro import Confirmation
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.post_mortem import triage_core
from tests.built_model import Built

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(find_cuda_program(gpu_core.READER) is None, reason="cuda-gdb is not installed"),
]

BAD_ROW = 1 << 40
STALL = 5


@pytest.fixture
def bad_row(tmp_path: Path) -> Path:
    """Inputs of the gather with a row far outside of its table, which block 100 reads."""
    index = torch.randint(0, 500, (256,), device="cuda")
    index[100] = BAD_ROW
    torch.save((index,), tmp_path / "bad.pt")
    return tmp_path / "bad.pt"


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """Inputs with which the kernel waits for ever."""
    inputs = (torch.rand(4, 256, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda"))
    torch.save(inputs, tmp_path / "go.pt")
    return tmp_path / "go.pt"


def shown(dump: Path) -> None:
    """Prints what cuda-gdb prints: it is shown if the test fails, and with `pytest -s`."""
    debugger = find_cuda_program(gpu_core.READER)
    assert debugger is not None
    first = gpu_core.run(Path(debugger), dump, gpu_core.COMMANDS)
    print(dump.stat().st_size, "bytes", first.stdout, first.stderr, sep="\n")
    core = gpu_core.parse(first.stdout)
    if core is not None:
        commands = gpu_access.commands(gpu_access.operand_of(core.instruction), core.architecture)
        second = gpu_core.run(Path(debugger), dump, commands)
        print(second.stdout, second.stderr, sep="\n")
        print(gpu_core.with_registers(core, second.stdout))


def failed(package: Path, inputs: Path, folder: Path) -> RunResult:
    """A run in which a kernel fails, with its dump."""
    result = runner.run(RunOptions(package, inputs=inputs, out=folder, gpu_core=True))
    print((result.run.path / "stderr.log").read_text())
    assert (result.run.path / GPU_CORE).exists(), sorted(path.name for path in result.run.path.iterdir())
    shown(result.run.path / GPU_CORE)
    return result


def sentences(finding: Finding) -> str:
    text = "\n".join([finding.what, *finding.evidence, *finding.possible, *finding.warnings])
    print(finding, text, sep="\n")
    return text


def test_a_run_ends_as_without_the_dump_and_leaves_it(
    build: Callable[[str], Built], bad_row: Path, tmp_path: Path
) -> None:
    result = failed(build("gather").package, bad_row, tmp_path / "runs")
    assert result.run.state is ExitKind.FAULT
    assert result.run.info.exit.signal == ""
    assert result.verdict is not None
    assert result.verdict.proof is Proof.RANGE  # breadcrumbs go on behind a kernel that fails
    assert any(launch.kernel.startswith("gather_kernel") for launch in result.verdict.suspects)
    assert "gpu.core" in result.verdict.next_commands[0]


def test_a_dump_names_the_kernel_the_line_and_the_argument(
    build: Callable[[str], Built], bad_row: Path, tmp_path: Path
) -> None:
    result = failed(build("gather").package, bad_row, tmp_path / "runs")
    done = triage_core(TriageOptions(result.run.path / GPU_CORE, out=tmp_path / "triages"), None)
    text = sentences(done.finding)
    assert done.finding.kind == FAULT
    assert "invalid memory access on the GPU in gather_kernel" in done.finding.what
    assert done.finding.where is not None
    assert done.finding.where.kernel.startswith("gather_kernel")
    assert done.finding.where.launch
    assert "it shows block (100,0,0)" in text
    assert "a load from global memory" in text
    assert "block (100,0,0), thread (" in text
    assert done.finding.where.argument == ""  # the address lies in none
    assert "values = tl.load(table + source * width + column" in text
    element = re.search(r"it may be element (\d+) of buf1", text)
    assert element is not None
    assert int(element[1]) // 64 == 2 * BAD_ROW  # any of the row: cuda-gdb shows any warp


def test_a_triage_makes_the_dump_where_no_repro_shows_the_fault(
    build: Callable[[str], Built], bad_row: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirm_by_repro, "confirm", lambda *_: Confirmation(None, (), ("it is not replayed here",)))
    options = TriageOptions(build("gather").package, inputs=bad_row, out=tmp_path / "triages", compare=False)
    done = session.triage(options)
    text = sentences(done.finding)
    steps = [step.name for step in done.record.steps]
    assert done.finding.kind == FAULT
    assert done.finding.where is not None
    assert done.finding.where.kernel.startswith("gather_kernel")
    assert "run, core dump of the GPU" in steps, steps
    assert "cuda-gdb: Warp" in text
    assert "block (100,0,0)" in text


def test_a_dump_of_a_kernel_that_never_ends_names_its_line(hanging: Built, waiting: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    options = RunOptions(hanging.package, inputs=waiting, out=tmp_path / "runs", stall=STALL, gpu_core=True)
    result = runner.run(options)
    seconds = time.monotonic() - began
    assert result.run.state is ExitKind.TIMEOUT
    dump = result.run.path / GPU_CORE
    assert dump.exists(), (seconds, sorted(path.name for path in result.run.path.iterdir()))
    shown(dump)
    done = triage_core(TriageOptions(dump, out=tmp_path / "triages"), None)
    text = sentences(done.finding)
    assert done.finding.kind == HANG
    assert "waiting_kernel" in done.finding.what
    assert done.finding.where is not None
    assert done.finding.where.launch
    assert "cuda-gdb: the warp that it shows was in waiting_kernel at " in text
    assert "while ready == 0" in text or "tl.load(go" in text


def test_a_triage_of_a_kernel_that_never_ends_has_its_line(hanging: Built, waiting: Path, tmp_path: Path) -> None:
    options = TriageOptions(hanging.package, inputs=waiting, out=tmp_path / "triages", stall=STALL, compare=False)
    done = session.triage(options)
    text = sentences(done.finding)
    assert done.finding.kind == HANG
    assert done.finding.where is not None
    assert done.finding.where.kernel.startswith("waiting_kernel")
    assert "run, core dump of the GPU" in [step.name for step in done.record.steps]
    assert "cuda-gdb: the warp that it shows was in waiting_kernel at " in text


def test_a_run_without_a_fault_leaves_no_dump(build: Callable[[str], Built], tmp_path: Path) -> None:
    result = runner.run(RunOptions(build("gather").package, out=tmp_path / "runs", gpu_core=True))
    assert result.verdict is None
    assert not (result.run.path / GPU_CORE).exists()
