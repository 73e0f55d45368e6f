"""Packages without wrapper source: launches recorded by symbol interposition, and the stated limits."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.app.cli import main
from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder.build import build
from aoti_debug.package.manifest import Kind, PackageOrigin
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.diagnosis.findings import FAULT, INCOMPLETE
from aoti_debug.runs.run import configuration, runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.launch import LaunchStatus
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.session import triage
from tests import archives, forked_script
from tests.built_model import FromPackage
from tests.once import once
from tests.stripped_package import order, stripped

x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="calls are interposed on x86-64 only")
LOOKUP = """
import sys, torch
from tests import wrapper_templates

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(100, 32)
        self.linear = torch.nn.Linear(32, 64)

    def forward(self, x, index):
        return torch.softmax(self.linear(self.table(index) + x), -1)

program = torch.export.export(Model().eval(), (torch.ones(8, 32), torch.arange(8)))
wrapper_templates.share()
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1])
"""


@pytest.fixture(scope="module")
def lookup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "lookup", compile_lookup)


def compile_lookup(folder: Path) -> Path:
    (folder / "lookup.py").write_text(LOOKUP)
    forked_script.run(folder / "lookup.py", folder / "whole.pt2")
    torch.save((torch.ones(8, 32), torch.arange(8)), folder / "good.pt")
    torch.save((torch.ones(8, 32), torch.full((8,), 1_000_000)), folder / "bad.pt")
    return stripped(folder / "whole.pt2", folder / "stripped.pt2")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AOTI_DEBUG_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("AOTI_DEBUG_PRINT", "none")


@x86_64
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed", "control", "views", "custom"])
def test_the_launches_are_those_of_the_instrumented_package(
    from_package: Callable[[str], FromPackage], tmp_path: Path, name: str
) -> None:
    found = from_package(name)
    inputs = found.original.parent / "inputs.pt"
    one = runner.run(RunOptions(found.package, level=3)).run
    other = runner.run(
        RunOptions(
            stripped(found.original, tmp_path / "s.pt2"), inputs=inputs, level=3, user_code=UserCode(("tests.models",))
        )
    ).run
    assert other.manifest.source is PackageOrigin.STRIPPED
    assert order(other) == order(one)


@x86_64
@pytest.mark.slow
def test_what_the_c_shim_is_given_is_known(lookup: Path) -> None:
    result = runner.run(RunOptions(lookup, inputs=lookup.with_name("good.pt"), calls=2))
    assert result.verdict is None
    assert {(call.kind.value, call.call) for call in result.run.timeline.calls} == {(0, 0), (0, 1)}
    launch = next(launch for launch in result.run.launches if launch.site.kind is Kind.SHIM_OUT)
    assert launch.kernel == "aoti_torch_cpu_addmm_out"
    layouts = {a.name: a.tensor.layout for a in launch.args if a.tensor is not None}
    assert {name: layout.shape for name, layout in layouts.items()} == {
        "out": (8, 64),
        "self": (64,),
        "mat1": (8, 32),
        "mat2": (32, 64),
    }


@x86_64
@pytest.mark.slow
def test_a_fault_is_laid_to_its_launch(lookup: Path) -> None:
    result = runner.run(RunOptions(lookup, inputs=lookup.with_name("bad.pt")))
    assert result.verdict is not None
    launch = result.verdict.launch
    assert launch is not None
    assert (launch.id, launch.status, launch.site.kind) == ("0.0", LaunchStatus.FAILED, Kind.CPP)
    assert "index out of bounds" in result.verdict.what
    assert not any("repro" in command for command in result.verdict.next_commands)


@x86_64
@pytest.mark.slow
def test_triage_says_what_it_could_not_look_at(lookup: Path, tmp_path: Path) -> None:
    found = {
        name: triage(TriageOptions(lookup, inputs=lookup.with_name(f"{name}.pt"), out=tmp_path / name)).finding
        for name in ("good", "bad")
    }
    assert {name: finding.kind for name, finding in found.items()} == {
        "good": INCOMPLETE,
        "bad": FAULT,
    }
    for finding in found.values():
        assert finding.repro == ""
        assert any(warning.startswith("no wrapper source in the package") for warning in finding.warnings)


@x86_64
@pytest.mark.slow
def test_the_command_line_says_what_is_missing_for_more(
    lookup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["run", str(lookup), "--inputs", str(lookup.with_name("good.pt"))]) == 0
    assert "the package as torch wrote it" in " ".join(capsys.readouterr().err.split())
    assert main.run(["run", str(lookup)]) == 3
    assert "the model's signature is not known" in capsys.readouterr().err
    assert main.run(["build", str(lookup)]) == 3
    assert "aoti-debug run and aoti-debug triage take it as it is" in capsys.readouterr().err


@x86_64
@pytest.mark.slow
@pytest.mark.parametrize("options", [{"guards": True}, {"random_inputs": 3}])
def test_what_needs_the_source_is_refused(lookup: Path, options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="needs the source of the package's wrapper"):
        runner.run(RunOptions(lookup, **options))  # type: ignore[arg-type]


@x86_64
@pytest.mark.slow
def test_a_package_with_source_is_to_be_built_first(lookup: Path) -> None:
    with pytest.raises(ArtifactError, match="an instrumented package is required"):
        runner.run(RunOptions(lookup.with_name("whole.pt2")))


def test_only_the_model_that_is_meant_counts(tmp_path: Path) -> None:
    members = {
        f"{archive.AOTINDUCTOR}{name}": data
        for name, data in {
            "one/c1.wrapper.so": b"\x7fELF",
            "one/c1.wrapper.cpp": b"class AOTInductorModel",
            "two/c2.wrapper.so": b"\x7fELF",
            "three/c3.wrapper.so": b"\x7fELF",
            "three/c3.wrapper.cpp": b"",
        }.items()
    }
    package = archive.inspect(archives.write(tmp_path / "m.pt2", members))
    found = {name: package.is_stripped(name) for name in ("one", "two", "three", "")}
    assert found == {"one": False, "two": True, "three": True, "": False}


def test_several_models_need_a_name(tmp_path: Path) -> None:
    members = {f"{archive.AOTINDUCTOR}{name}/c1.wrapper.so": b"\x7fELF" for name in ("one", "two")}
    path = archives.write(tmp_path / "m.pt2", members)
    with pytest.raises(UsageError, match="holds 2 models"):
        configuration.run_target(path, "", trusted=True)
    with pytest.raises(UsageError, match="holds no model 'three'"):
        configuration.run_target(path, "three", trusted=True)


def test_build_says_that_there_is_nothing_to_instrument(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="holds no source of its wrapper"):
        build(archives.write(tmp_path / "m.pt2", archives.PACKAGE), output=tmp_path / "o.pt2")
