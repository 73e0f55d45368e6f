"""Whole comparisons: ordinary models have no wrong launch, a planted fault is found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from aoti_debug.app.cli.main import group
from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.compare.compare import CompareOptions, compare, compare_sources
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.outcome import exit_code
from aoti_debug.compare.stored_comparison import document
from aoti_debug.compare.text import comparison_lines
from aoti_debug.package.pt2 import trust
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.views.report import report
from tests import archives, schema
from tests.corpus.case import origin_lines
from tests.corpus.wrong_values import Relu

Runs = Callable[[str], RunDir]
COMPARE = json.loads((schema.DOCS / "compare.schema.json").read_text())


def compared(run: RunDir, folder: Path, **options: object) -> Comparison:
    return compare(replace(CompareOptions(model=run.path, out=folder / "compares"), **options))  # type: ignore[arg-type]


def share(comparison: Comparison) -> float:
    return sum(row.compared_bytes for row in comparison.rows) / sum(row.bytes for row in comparison.rows)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("mixed", 0.99),
        ("control", 0.95),
        ("custom", 0.99),
        ("fold", 0.99),
        ("half", 0.99),
        ("attention", 0.9),
        ("views", 0.7),
        ("blocks", 0.99),
        ("planned", 0.95),
        ("sizes", 0.5),
        ("mutation", 0.5),
    ],
)
def test_an_ordinary_model(saved: Runs, tmp_path: Path, name: str, least: float) -> None:
    comparison = compared(saved(name), tmp_path)
    assert comparison.first_wrong is None
    assert share(comparison) >= least
    assert all(row.reason or row.notes for row in comparison.rows if row.compared_bytes < row.bytes)
    assert schema.problems(json.loads(json.dumps(document(comparison), allow_nan=False)), COMPARE) == []
    assert comparison_lines(comparison, UNLIMITED)


def test_what_a_run_has_not_saved_of_its_outputs_is_not_wrong(saved: Runs, tmp_path: Path) -> None:
    comparison = compared(saved("mixed"), tmp_path)
    assert comparison.faulty_outputs == ()
    assert "what the model returns (the run did not save it)" in comparison.not_compared
    assert exit_code(comparison) == 8


def test_errors_against_the_whole_program(saved: Runs, tmp_path: Path) -> None:
    comparison = compared(saved("control"), tmp_path)
    last = next(row for row in reversed(comparison.rows) if row.inherited)
    assert last.inherited is not None
    assert max(last.inherited.values()) < 1e-5
    assert comparison.program_failure == ""


def test_some_launches_and_a_metric(saved: Runs, tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("def largest(actual, expected):\n    return (actual - expected).abs().max()\n")
    comparison = compared(
        saved("blocks"), tmp_path, filters=SiteFilter(("*addmm*",)), metric=f"{tmp_path / 'my.py'}:largest"
    )
    rows = [row for row in comparison.rows if row.outputs]
    assert {row.launch.kernel for row in rows} == {"aoti_torch_cpu_addmm_out"}
    assert all(o.metric == pytest.approx(o.atol) for row in rows for o in row.outputs)
    lines = comparison_lines(comparison, UNLIMITED)
    assert "metric" in lines[0]
    assert all(row.same_code == (row.launch.kernel == "aoti_torch_cpu_addmm_out") for row in comparison.rows)
    assert comparison.coverage.same_code_bytes == comparison.coverage.compared_bytes > 0
    assert any("ok, same code" in line for line in lines)


def test_a_run_without_tensors_is_run_again(saved: Runs, tmp_path: Path) -> None:
    again = copy_of(saved("half"), tmp_path / "run")
    shutil.rmtree(again / "tensors")
    (again / "journal.bin").unlink()
    comparison = compare(CompareOptions(model=again, out=tmp_path / "compares"))
    assert comparison.run.path != again
    assert comparison.first_wrong is None
    assert share(comparison) == 1.0


def test_the_launches_of_a_module(saved: Runs, tmp_path: Path) -> None:
    comparison = compared(saved("blocks"), tmp_path, filters=SiteFilter(modules=("linear.2",)))
    chosen = [row.launch.site.provenance.modules for row in comparison.rows if row.outputs]
    assert chosen
    assert all("linear.2" in modules for modules in chosen)
    assert len(chosen) < len(comparison.rows)
    with pytest.raises(UsageError, match=r"passes --module linear\.9$") as caught:
        compared(saved("blocks"), tmp_path, filters=SiteFilter(modules=("linear.9",)))
    assert "linear.2" in caught.value.hint


def test_a_run_whose_tensors_were_lost(saved: Runs, tmp_path: Path) -> None:
    cut = copy_of(saved("half"), tmp_path / "run")
    for path in cut.glob("tensors/0/0001*/*"):
        path.unlink()
    comparison = compare(CompareOptions(model=cut, out=tmp_path / "compares"))
    verdicts = [row.verdict for row in comparison.rows]
    assert verdicts == [LaunchVerdict.OK, LaunchVerdict.NOT_COMPARABLE]
    assert "is missing" in comparison.rows[1].reason


def copy_of(run: RunDir, folder: Path) -> Path:
    return Path(shutil.copytree(run.path, folder, symlinks=True))


def test_a_wrong_lowering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        torch.export.save(torch.export.export(Relu().eval(), (torch.randn(8, 16),)), tmp_path / "model.pt2")
    monkeypatch.chdir(tmp_path)
    setting = "cpp.inject_relu_bug_TESTING_ONLY=accuracy"
    command = ["compare", "model.pt2", "--inductor-config", setting, "--report"]
    result = CliRunner().invoke(group, command, prog_name="aoti-debug")
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    wrong = next(line for line in lines if line.startswith("WRONG "))
    assert wrong.startswith("WRONG 0.1 cpp_fused_relu")
    operator = next(line for line in lines if line.startswith("  operator"))
    assert "aten.relu.default" in operator
    (line,) = origin_lines(Relu())
    assert f"{line.file.name}:{line.line} in forward" in operator
    assert any(line.startswith("  element  buf1[") for line in lines)
    folder = (tmp_path / "aoti-debug/compares" / "latest").resolve()
    assert f"  report   {folder / 'report/index.html'}" in lines
    assert "Errors along the launches" in (folder / "report/index.html").read_text()
    found = json.loads((folder / "compare.json").read_text())
    assert schema.problems(found, COMPARE) == []
    again = report.of_run(open_run(found["run"]))
    assert (again.finding.kind.value, again.finding.where.launch if again.finding.where else "") == (
        "wrong_value",
        "0.1",
    )
    output = next(output for output in found["launches"][1]["outputs"] if output["verdict"] == "wrong")
    assert output["spread"]["ranges"] == [[[0, 7]], [[0, 31]]]
    repro = folder / "repro" / "repro.py"
    assert f"  next     python {repro}" in lines
    expected = load_file(repro.parent / "tensors" / "program_buf1.safetensors")["buf1"]
    assert (expected.dtype, tuple(expected.shape)) == (torch.float64, (8, 32))
    replayed = subprocess.run([sys.executable, str(repro)], capture_output=True, text=True, check=True)
    assert "farthest from the program: [" in replayed.stdout


class Joined(nn.Module):
    """A kernel that writes the parts of a tensor and reads the whole; booleans made of half precision."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(16, device=x.device).expand(2, -1)
        steps = torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1)
        return (steps != 1).cumsum(-1), (x * 3 + 1 > 0.5) | x.isinf().any(-1, keepdim=True)


@pytest.mark.slow
def test_tensors_that_a_kernel_joins_and_reads(tmp_path: Path) -> None:
    with torch.no_grad():
        torch.export.save(torch.export.export(Joined(), (torch.randn(2, 16).half(),)), tmp_path / "model.pt2")
    comparison = compare(CompareOptions(model=tmp_path / "model.pt2", out=tmp_path / "compares"))
    assert comparison.is_clean
    assert share(comparison) >= 0.9


# What cannot be compared


def test_options_that_make_no_sense(saved: Runs, tmp_path: Path) -> None:
    run = saved("half")
    for options, message in (
        ({"metric": "f"}, "--metric f is not FILE.py:FUNCTION"),
        ({"metric": "none.py:f"}, "--metric: none.py does not exist"),
        ({"calls": 0}, "--calls 0 is less than 1"),
        ({"inputs": Path("x.pt"), "random_inputs": 3}, "--inputs and --random-inputs exclude each other"),
        ({"filters": SiteFilter(("nothing*",))}, "no launch that can be compared passes --filter nothing*"),
    ):
        with pytest.raises(UsageError, match=message.replace("*", r"\*")) as caught:
            compared(run, tmp_path, **options)
        assert caught.value.hint
    assert not (tmp_path / "compares").exists()


def test_a_metric_that_fails(saved: Runs, tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("import no_such_module\n")
    with pytest.raises(UsageError, match="fails: ModuleNotFoundError"):
        compared(saved("half"), tmp_path, metric=f"{tmp_path / 'my.py'}:f")


def test_a_run_of_another_package(saved: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "find_place", lambda manifest_sha256: None)
    other = copy_of(saved("half"), tmp_path / "run")
    (other / "package.pt2").unlink()
    with pytest.raises(RunDirError, match="was not found"):
        compare(CompareOptions(model=other, out=tmp_path / "compares"))
    os.symlink(str(saved("blocks").package), other / "package.pt2")
    with pytest.raises(RunDirError, match="their wrappers differ"):
        compare(CompareOptions(model=other, out=tmp_path / "compares"))


def test_it_starts_without_torch() -> None:
    import subprocess

    code = "import sys, aoti_debug.app.cli.commands.compare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


RECORDED = Path(__file__).parent.parent / "recorded"
ALL = SiteFilter()


def recorded(name: str, folder: Path) -> RunDir:
    with tarfile.open(RECORDED / f"{name}.tar.xz") as archive:
        archives.extract(archive, folder)
    return open_run(folder)


def compared_sources(run: RunDir, folder: Path, filters: SiteFilter = ALL) -> Comparison:
    folder.mkdir()
    return compare_sources(run, filters, folder, Steps())


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return recorded("two_specialisations", tmp_path / "run")


def test_triton_kernels_are_interpreted(run: RunDir, tmp_path: Path) -> None:
    first, *others = compared_sources(run, tmp_path / "out").rows
    assert [(row.verdict.value, row.reason) for row in others] == [("matches its source", "")] * 2
    assert first.verdict is LaunchVerdict.NOT_COMPARABLE
    assert first.reason.endswith("is gone")  # it was left out of the archive


def test_another_result_than_the_source_gives(run: RunDir, tmp_path: Path) -> None:
    launch = run.launches[1]
    output = next(argument for argument in launch.args if argument.written)
    path = run.tensor_path(output.files[Phase.AFTER])
    ((name, tensor),) = load_file(path).items()
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensor.reshape(-1)[3] += 1
    path.unlink()
    save_file({name: tensor}, path, metadata)
    comparison = compared_sources(run, tmp_path / "out")
    first = comparison.first_wrong
    assert first is not None
    assert (first.launch.id, first.verdict.value) == (launch.id, "differs from its source")
    assert "differs in 1 of" in first.reason
    assert (tmp_path / "out" / "sources" / launch.id / "repro.py").is_file()


def test_launches_that_were_not_selected(run: RunDir, tmp_path: Path) -> None:
    rows = compared_sources(run, tmp_path / "out", SiteFilter(("no_such_kernel",))).rows
    assert {(row.verdict, row.reason) for row in rows} == {(LaunchVerdict.NOT_COMPARABLE, "it was not selected")}
