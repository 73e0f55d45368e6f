"""Launches that were recorded on a CUDA device, against the sources of their Triton kernels, interpreted."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from aoti_debug.base.abi import Phase
from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare.compare_sources import compare_sources
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.package.recording.site_filter import SiteFilter
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests import archives

RECORDED = Path(__file__).parent.parent / "recorded"
ALL = SiteFilter()


def recorded(name: str, folder: Path) -> RunDir:
    with tarfile.open(RECORDED / f"{name}.tar.xz") as archive:
        archives.extract(archive, folder)
    return open_run(folder)


def compared(run: RunDir, folder: Path, filters: SiteFilter = ALL) -> Comparison:
    folder.mkdir()
    return compare_sources(run, filters, folder, Steps())


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return recorded("two_specialisations", tmp_path / "run")


def test_triton_kernels_are_interpreted(run: RunDir, tmp_path: Path) -> None:
    first, *others = compared(run, tmp_path / "out").rows
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
    comparison = compared(run, tmp_path / "out")
    first = comparison.first_wrong
    assert first is not None
    assert (first.launch.id, first.verdict.value) == (launch.id, "differs from its source")
    assert "differs in 1 of" in first.reason
    assert (tmp_path / "out" / "sources" / launch.id / "repro.py").is_file()


def test_launches_that_were_not_selected(run: RunDir, tmp_path: Path) -> None:
    rows = compared(run, tmp_path / "out", SiteFilter(("no_such_kernel",))).rows
    assert {(row.verdict, row.reason) for row in rows} == {(LaunchVerdict.NOT_COMPARABLE, "it was not selected")}
