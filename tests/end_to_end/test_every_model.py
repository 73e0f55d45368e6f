"""What must hold for every model: equal outputs at every level, and every launch and tensor recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import torch

from aoti_debug.base.abi import Phase
from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Form, Role
from aoti_debug.runs.rundir import load_tensors
from aoti_debug.runs.rundir.launch import LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.built_model import Built
from tests.model_outputs import outputs
from tests.paths import ROOT

pytestmark = pytest.mark.slow

MODELS = (
    "mixed",
    "control",
    "fold",
    "custom",
    "mutation",
    "attention",
    "views",
    "sizes",
    "half",
    "gemm",
)

# What models must bring out; the number of sites would tie the tests to one torch.
KERNELS = {
    "mixed": ("aoti_torch_cpu_addmm_out", "aoti_torch_cpu_convolution", "aten::complex.default", "aoti_torch_cpu_topk"),
    "mutation": ("aoti_torch_index_put_out", "aoti_torch_cpu_bernoulli__float", "aoti_torch_copy_", "aoti_torch_clone"),
    "custom": ("aotidebugtest::scale_all.default", "aotidebugtest::accumulate_.default"),
}


@pytest.mark.parametrize("name", MODELS)
def test_outputs_equal_the_plain_twin_at_every_level(
    built: Callable[[str], Built], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plain = outputs(built(name).plain, name)
    monkeypatch.setenv("AOTI_DEBUG_DIR", str(tmp_path))
    monkeypatch.setenv("AOTI_DEBUG_PRINT", "none")
    equal = {}
    for level in ("0", "1", "2", "3"):
        monkeypatch.setenv("AOTI_DEBUG_LEVEL", level)  # read when a package is first called; each load is a new copy
        equal[level] = outputs(built(name).package, name) == plain
    assert equal == dict.fromkeys(("0", "1", "2", "3"), True)
    assert len([run for run in tmp_path.iterdir() if not run.is_symlink()]) == 3


@pytest.mark.parametrize("name", MODELS)
def test_nothing_that_looks_like_a_launch_is_passed_over(built: Callable[[str], Built], name: str) -> None:
    assert built(name).summary.manifest.unrecognised == ()


@pytest.mark.parametrize("name", KERNELS)
def test_every_launch_is_read(built: Callable[[str], Built], name: str) -> None:
    manifest = built(name).summary.manifest
    assert set(KERNELS[name]) <= {site.kernel for site in manifest.sites}
    assert {site.callee for site in manifest.sites if not site.provenance.source} == set()
    named = {kernel.name for kernel in manifest.kernels}
    assert {site.kernel for site in manifest.sites if site.callee.startswith("cpp_")} == named
    args = [arg for site in manifest.sites for arg in site.args]
    tensors = [arg for arg in args if arg.form in (Form.TENSOR, Form.POINTER, Form.LIST)]
    assert {arg.role for arg in tensors} <= {Role.IN, Role.OUT, Role.INOUT}


@pytest.mark.parametrize("name", MODELS)
def test_every_launch_and_every_tensor_is_saved(saved: Callable[[str], RunDir], name: str) -> None:
    run = saved(name)
    missing = []
    for launch in run.launches:
        assert launch.status is LaunchStatus.RETURNED
        for argument in launch.args:
            if argument.tensor is None:
                continue
            phases = {Phase.BEFORE, Phase.AFTER} if isinstance(argument.before, Tensor) else {Phase.AFTER}
            missing += [(launch.id, launch.kernel, argument.name, p.name) for p in phases - argument.files.keys()]
            for saved_tensor in argument.files.values():
                if saved_tensor.path:
                    load_tensors.load_file(run.tensor_path(saved_tensor))
    assert missing == []


@pytest.mark.parametrize("name", MODELS)
def test_sites_that_ran_account_for_every_launch(saved: Callable[[str], RunDir], name: str) -> None:
    run = saved(name)
    assert {launch.site.id for launch in run.launches} <= {site.id for site in run.manifest.sites}
    skipped = {site for site in run.manifest.sites if site.id not in {launch.site.id for launch in run.launches}}
    assert {site.subgraph != "" for site in skipped} <= {True}  # only what stands in a branch may not have run


@pytest.mark.parametrize("name", ["control", "custom"])
def test_show_prints_json_that_follows_its_schema(saved: Callable[[str], RunDir], name: str) -> None:
    command = [sys.executable, "-m", "aoti_debug", "show", str(saved(name).path), "--json"]
    shown = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout)
    jsonschema.validate(shown, json.loads((ROOT / "docs" / "show.schema.json").read_text()))
    assert [launch["id"] for launch in shown["launches"]] == [launch.id for launch in saved(name).launches]


def test_inputs_of_one_launch_are_outputs_of_an_earlier_one(saved: Callable[[str], RunDir]) -> None:
    run = saved("mixed")
    written: dict[str, torch.Tensor] = {}
    checked = 0
    for launch in run.launches:
        for argument in launch.args:
            if argument.role is Role.IN and argument.name in written and Phase.BEFORE in argument.files:
                value = load_tensors.load_file(run.tensor_path(argument.files[Phase.BEFORE]))
                assert torch.equal(value, written[argument.name]), (launch.id, argument.name)
                checked += 1
        for argument in launch.args:
            if argument.role in (Role.OUT, Role.INOUT) and argument.tensor is not None:
                written[argument.name] = load_tensors.load_file(run.tensor_path(argument.files[Phase.AFTER]))
    assert checked >= 8
