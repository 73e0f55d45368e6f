from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.app.cli.run_lines import summary, unmatched_warning
from aoti_debug.base import terminal_cells
from aoti_debug.package.recording_settings import SiteFilter, unmatched
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.run.runner import RunResult
from tests.factories import make_manifest, site
from tests.runs.show.recorded import long_names

KERNELS = make_manifest(site("triton_poi_fused_1"), site("cpp_fused_relu_0"), site("cpp_fused_relu_0"))


def test_the_kernels_are_listed() -> None:
    assert unmatched_warning(()) == []
    assert unmatched_warning(unmatched(KERNELS, SiteFilter(("!cuda_*", "x?")))) == [
        "warning: no kernel matches !cuda_*, x?; the package has:",
        "  cpp_fused_relu_0",
        "  triton_poi_fused_1",
    ]


def test_a_long_list_ends() -> None:
    many = make_manifest(*(site(f"k{n:02}") for n in range(30)))
    lines = unmatched_warning(unmatched(many, SiteFilter(("x",))))
    assert (len(lines), lines[-1]) == (22, "  and 10 more")


def test_names_that_a_package_does_not_hold() -> None:
    assert unmatched_warning(unmatched(KERNELS, SiteFilter(modules=("a", "b"), lines=("model.py:13",)))) == [
        "warning: no module matches a, b: the package holds no module paths",
        "warning: no model line matches model.py:13; the package has:",
        "  /home/u/model.py:12",
    ]


@pytest.mark.parametrize(("columns", "notes"), [(80, 2), (terminal_cells.UNLIMITED, 1)], ids=["narrow", "no terminal"])
def test_the_summary_fits_the_terminal(tmp_path: Path, columns: int, notes: int) -> None:
    run = long_names(tmp_path)
    found = summary(
        RunResult(DiagnosedRun(run), 1234.5, lost="its log is not complete: " + "the disk is full " * 6), columns
    )
    end = next(number for number, line in enumerate(found) if line.startswith("run: "))
    assert found[0].startswith("30 launches in 1 call, ")
    assert len(found[1:end]) == notes
    assert max(map(len, found[:end])) <= columns
