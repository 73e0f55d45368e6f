"""The calls that the exported program is to make, from a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from aoti_debug.compare.compare_run import reference_of
from aoti_debug.compare.regions.programs import exported_run
from aoti_debug.compare.regions.regions import find_regions
from aoti_debug.rundir.load_tensors import load_file
from aoti_debug.rundir.run_directory import RunDir


def test_the_weights_are_those_that_launches_were_passed(saved: Callable[[str], RunDir], tmp_path: Path) -> None:
    run = saved("mixed")
    reference, _ = reference_of(run)
    calls = exported_run(run, reference, find_regions(run, reference), tmp_path)
    assert calls is not None
    assert (calls.calls, calls.returned) == (1, str(tmp_path))
    assert calls.last is not None
    assert (calls.last.call, calls.last.outputs) == (0, ())
    names = {constant.fqn: constant.name for constant in run.manifest.constants if constant.fqn}
    assert calls.weights
    for weight in (weight for weight in calls.weights if not weight.is_view):
        passed = next(a for launch in run.launches for a in launch.args if a.name == names[weight.name])
        assert passed.layout is not None
        assert tuple(load_file(Path(weight.path)).shape) == passed.layout.shape


def test_a_package_without_a_graph(saved: Callable[[str], RunDir], tmp_path: Path) -> None:
    run = saved("mixed")
    reference, _ = reference_of(run)
    regions = find_regions(run, reference)
    assert exported_run(run, replace(reference, graphs=()), regions, tmp_path) is None
