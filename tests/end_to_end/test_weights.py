"""Where weights are: appended to the library that maps them, or left in the file of the exported program."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file
from torch import Tensor, nn

import aoti_debug
from aoti_debug.app.cli import main
from aoti_debug.base.abi import Phase, SaveStatus
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder import package_manifest
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.package.pt2 import archive
from aoti_debug.package.weights_file import MEMBER, WeightsPlace
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.formats import weight_reference
from aoti_debug.runs.rundir.load_tensors import load_launch
from aoti_debug.runs.rundir.run_directory import RunDir, find, open_run
from tests import wrapper_templates
from tests.once import once


class Counting(nn.Module):
    """Two names of one weight, a transposed one, a buffer that each call changes, and a tensor that is a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.turned = nn.Parameter(torch.randn(8192, 64).t())  # 2 MiB: not copied into runs
        self.register_buffer("calls", torch.zeros(64))
        self.constant = torch.arange(64.0)

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return (self.second(self.first(x).relu()) * self.calls + self.constant) @ self.turned


@dataclass(frozen=True)
class Weighty:
    """A program, its packages and what the second call returns.

    Weights are inside, appended, by reference, or come from the plain package, which the last one was built from.
    """

    program: Path
    plain: Path
    packages: dict[str, Path]
    expected: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Weighty:
    def make(folder: Path) -> Weighty:
        torch.manual_seed(0)
        module, x = Counting().eval(), torch.randn(4, 64)
        torch.save((x,), folder / "inputs.pt")
        program = folder / "model.pt2"
        with torch.no_grad():
            exported = torch.export.export(module, (x,))
            torch.export.save(exported, program)
            wrapper_templates.share()
            torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "plain.pt2"))
            module.calls.zero_()
            module(x)
            torch.save(module(x), folder / "expected.pt")
        mapped = {"aot_inductor.force_mmap_weights": True}
        chosen = {
            "inside": BuildOptions(program),
            "appended": BuildOptions(program, inductor_configs=mapped),
            "reference": BuildOptions(program, weights=WeightsPlace.BY_REFERENCE),
            "compiled": BuildOptions(folder / "plain.pt2", inputs=folder / "inputs.pt"),
        }
        packages = {name: folder / f"{name}.pt2" for name in chosen}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(package_manifest, "LARGE", 1 << 20)  # bytes
            for name, options in chosen.items():
                builder.build_report(replace(options, output=packages[name]))
        return Weighty(program, folder / "plain.pt2", packages, folder / "expected.pt")

    return once(tmp_path_factory, "weights", make)


@pytest.fixture(autouse=True)
def alone(built: Weighty) -> Iterator[None]:
    """One of these tests at a time: some of them move a file that the others read."""
    with FileLock(built.program.with_name("lock")):
        yield


@pytest.mark.parametrize("place", ["inside", "appended", "reference"])
def test_outputs_are_those_of_eager_wherever_the_weights_are(built: Weighty, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "outputs"
    result = runner.run(RunOptions(built.packages[place], level=2, calls=2, out=tmp_path / "runs", outputs=folder))
    assert result.verdict is None
    assert not any(note.text.startswith("weights") for note in result.run.timeline.notes)
    output = load_file(folder / "0.safetensors")
    torch.testing.assert_close(next(iter(output.values())), torch.load(built.expected, weights_only=True))


def test_the_package_holds_what_the_program_does_not(built: Weighty) -> None:
    package = archive.inspect(built.packages["reference"])
    weights = package.manifest().weights
    assert weights is not None
    assert weights.path == str(built.program)
    assert {"first.bias", "second.weight", "turned"} <= set(weights.names.values())
    assert MEMBER in package.members
    assert archive.inspect(built.packages["inside"]).manifest().weights is None
    inside = archive.inspect(built.packages["inside"]).manifest().program
    assert inside is not None
    assert (inside.path, dict(inside.names)) == (str(built.program), {"turned": "turned"})


@pytest.mark.parametrize("place", ["inside", "appended", "reference", "compiled"])
def test_level_1_refers_to_a_weight_in_its_file_and_a_repro_has_it_inside(
    built: Weighty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["run", str(built.packages[place]), "--level", "1"]) == 0
    assert "1 weight of 2.0 MiB not copied" in " ".join(capsys.readouterr().out.split())
    run = open_run()
    (launch,) = (launch for launch in run.launches if any(a.name == "turned" for a in launch.args))
    (argument,) = (a for a in launch.args if a.name == "turned")
    reference = run.tensor_path(argument.files[Phase.BEFORE])
    assert argument.files[Phase.BEFORE].status is SaveStatus.REFERRED
    assert sum(file.stat().st_size for file in run.path.rglob("*.safetensors")) < 1 << 20
    turned = torch.export.load(built.program).state_dict["turned"]
    assert torch.equal(load_launch(run, launch, Phase.BEFORE)["turned"], turned)
    assert main.run(["repro", launch.kernel, "-o", "repro"]) == 0
    assert "3 tensors, 2.3 MiB" in capsys.readouterr().out
    done = subprocess.run([sys.executable, "repro/repro.py"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "equal bit for bit" in done.stdout
    file = built.plain if place == "compiled" else built.program
    assert f'"{file}"' in reference.read_text()
    reference.write_text(reference.read_text().replace(str(file), str(tmp_path / "gone.pt2")))
    assert main.run(["show", launch.id]) == 0
    problem = f"the run refers to weights in {tmp_path / 'gone.pt2'}, which does not exist"
    assert f"not read: {problem}" in " ".join(capsys.readouterr().out.split())
    assert main.run(["report"]) == 0
    assert main.run(["repro", launch.kernel, "-o", "again"]) == 6
    assert capsys.readouterr().err.splitlines() == [
        f"error: {problem}",
        "hint: put it back, or run the package again at level 1",
    ]
    assert not Path("again").exists()


def weight_file(run: RunDir) -> Path:
    """The file that a run refers to for the large weight, which it reads there."""
    (launch,) = (launch for launch in run.launches if any(a.name == "turned" for a in launch.args))
    (argument,) = (a for a in launch.args if a.name == "turned")
    assert argument.files[Phase.BEFORE].status is SaveStatus.REFERRED
    torch.manual_seed(0)
    assert torch.equal(load_launch(run, launch, Phase.BEFORE)["turned"], Counting().turned)
    return Path(weight_reference.read(run.tensor_path(argument.files[Phase.BEFORE])).file)


@pytest.mark.parametrize("place", ["inside", "appended", "compiled"])
def test_a_package_whose_program_is_gone_is_referred_to_itself(
    built: Weighty, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "package.pt2"
    package.write_bytes(built.packages[place].read_bytes())
    origin = built.plain if place == "compiled" else built.program
    hidden = origin.rename(origin.with_name("hidden.pt2"))
    try:
        run = runner.run(RunOptions(package, level=1, out=tmp_path / "runs")).run
    finally:
        hidden.rename(origin)
    assert weight_file(run) == package


def test_a_script_and_a_block_refer_to_the_package_that_is_kept_with_the_run(
    built: Weighty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(package_manifest, "LARGE", 1 << 20)  # bytes; the script below has a process of its own
    package = tmp_path / "of script.pt2"
    package.write_bytes(built.plain.read_bytes())
    Path("script.py").write_text(
        "import os\n"
        "import torch\n"
        "from aoti_debug.instrument.builder import package_manifest\n"
        "package_manifest.LARGE = 1 << 20\n"
        f"model = torch._inductor.aoti_load_package({str(package)!r})\n"
        "os.remove('of script.pt2')\n"
        "model(torch.ones(4, 64))\n"
    )
    assert main.run(["exec", "--level", "1", "--out", "runs", "script.py"]) == 0
    run = open_run(find(base=tmp_path / "runs"))
    (kept,) = (run.path / "packages").iterdir()
    assert weight_file(run) == kept
    moved = run.path.rename(tmp_path / "moved")
    assert weight_file(open_run(moved)) == moved / "packages" / kept.name
    with aoti_debug.record(level=1, out=tmp_path / "blocks") as recorded:
        torch._inductor.aoti_load_package(str(built.plain))(torch.ones(4, 64))
    assert recorded.run is not None
    assert weight_file(recorded.run) == next((recorded.run.path / "packages").glob("*.pt2"))
    assert not (recorded.run.path / "packages/weights").exists()


def test_a_run_whose_tensors_have_no_room_does_not_begin(
    built: Weighty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AOTI_DEBUG_KEEP_FREE_BYTES", "1000T")
    assert main.run(["run", str(built.packages["inside"]), "--level", "1", "--out", "runs"]) == 5
    error, hint = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"error: a run at level 1 of inside\.pt2 saves at least [0-9.]+ KiB of tensors; on the disk of .*", error
    )
    assert hint.startswith("hint: --filter or --module chooses launches")
    assert not Path("runs").exists()
    assert main.run(["run", str(built.packages["inside"]), "--level", "3", "--out", "runs"]) == 0


def test_a_program_that_is_gone(
    built: Weighty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "model.pt2"
    program.write_bytes(built.program.read_bytes())
    builder.build_report(BuildOptions(program, output=tmp_path / "package.pt2", weights=WeightsPlace.BY_REFERENCE))
    program.unlink()
    assert main.run(["run", "package.pt2"]) == 3
    printed = capsys.readouterr().err.splitlines()
    assert printed[-2:] == [
        f"error: the package takes its weights from {program}, which does not exist",
        "hint: put it back, or build the package again",
    ]
