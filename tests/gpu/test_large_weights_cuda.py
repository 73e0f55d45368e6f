"""Weights that are too large to be copied into packages, and a fault in a launch that reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.app.cli import main
from aoti_debug.base.abi import Phase, SaveStatus
from aoti_debug.base.errors import TargetError
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.package.pt2 import archive
from aoti_debug.package.weights_file import WeightsPlace
from aoti_debug.runs.run import load_model
from aoti_debug.runs.rundir.formats import weight_reference
from aoti_debug.runs.rundir.load_tensors import load_launch
from aoti_debug.runs.rundir.run_directory import open_run

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
ROWS, WIDTH = 300_000, 512  # 586 MiB: more than the runtime has memory for copies that are on their way


class Lookup(nn.Module):
    """Looks up rows of a large table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH)
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.relu(self.head(self.table(ids)))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    ids = torch.arange(64, device="cuda")
    with torch.no_grad():
        torch.export.save(torch.export.export(Lookup().eval().cuda(), (ids,)), path)
    torch.save({"args": (torch.where(ids == 5, 1 << 40, ids),), "kwargs": {}}, path.with_name("bad.pt"))
    return path


def test_a_bad_index_into_a_large_table_has_a_repro(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["triage", str(program), "--inputs", str(program.with_name("bad.pt")), "--json"]) == 1
    finding = json.loads(capsys.readouterr().out)
    assert (finding["kind"], finding["warnings"]) == ("fault", [])
    assert Path(finding["repro"]).is_dir()
    (package,) = tmp_path.glob("aoti-debug/triages/2*/package.pt2")
    weights = archive.inspect(package).manifest().weights
    assert weights is not None
    assert weights.path == str(program)
    assert package.stat().st_size < 32 << 20
    (second,) = (run for run in tmp_path.glob("aoti-debug/triages/2*/runs/2*") if open_run(run).info.level == 1)
    (saved,) = second.rglob("before_launch_*table_weight*")
    assert saved.name.endswith(".weight.json")  # the hash on the device is that of the program's
    (inside,) = tmp_path.glob("aoti-debug/triages/2*/repro/tensors/before_*table_weight*")
    assert inside.stat().st_size > ROWS * WIDTH * 4


def test_a_clean_model_is_compared_with_its_program(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["triage", str(program)]) == 0
    assert "outputs finite, 3 of 3 launches computed what the program says" in capsys.readouterr().out


@pytest.fixture(scope="module")
def package(program: Path) -> Path:
    path = program.with_name("package.pt2")
    builder.build_report(BuildOptions(program, output=path, weights=WeightsPlace.BY_REFERENCE))
    return path


@pytest.mark.parametrize("place", list(WeightsPlace))
def test_a_run_copies_no_weight_that_the_program_has(
    program: Path,
    package: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: WeightsPlace,
) -> None:
    monkeypatch.chdir(tmp_path)
    if place is WeightsPlace.INSIDE:
        package = tmp_path / "inside.pt2"
        builder.build_report(BuildOptions(program, output=package))
    capsys.readouterr()
    assert main.run(["run", str(package), "--level", "1"]) == 0
    assert "1 weight of 585.9 MiB not copied" in " ".join(capsys.readouterr().out.split())
    run = open_run()
    assert sum(path.stat().st_size for path in run.path.rglob("*.safetensors")) < 8 << 20
    launch = next(launch for launch in run.launches if any(a.name == "table_weight" for a in launch.args))
    (saved,) = (a.files[Phase.BEFORE] for a in launch.args if a.name == "table_weight")
    assert saved.status is SaveStatus.REFERRED
    table = torch.export.load(program).state_dict["table.weight"]
    assert torch.equal(load_launch(run, launch, Phase.BEFORE, device="cpu")["table_weight"], table.cpu())


def test_a_run_of_a_compiled_package_refers_to_that(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ids = torch.arange(64, device="cuda")
    torch.save((ids,), "inputs.pt")
    compiled = torch._inductor.aoti_compile_and_package(torch.export.load(program), package_path="compiled.pt2")
    assert main.run(["build", str(compiled), "-o", "package.pt2"]) == 0
    for origin in (tmp_path / "compiled.pt2", tmp_path / "package.pt2"):
        capsys.readouterr()
        assert main.run(["run", "package.pt2", "--inputs", "inputs.pt", "--level", "1"]) == 0
        assert "1 weight of 585.9 MiB not copied" in " ".join(capsys.readouterr().out.split())
        run = open_run()
        launch = next(launch for launch in run.launches if any(a.name == "table_weight" for a in launch.args))
        (saved,) = (a.files[Phase.BEFORE] for a in launch.args if a.name == "table_weight")
        assert weight_reference.read(run.tensor_path(saved)).file == str(origin)
        table = torch.export.load(program).state_dict["table.weight"]
        assert torch.equal(load_launch(run, launch, Phase.BEFORE, device="cpu")["table_weight"], table.cpu())
        Path("compiled.pt2").unlink(missing_ok=True)


def test_weights_that_do_not_fit_into_the_memory_that_is_free(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (512 << 20, 80 << 30))
    artifact = archive.inspect(package)
    with pytest.raises(TargetError) as caught:
        load_model.load_recorded(artifact, artifact.manifest())
    assert str(caught.value) == (
        "the weights of the model need 586.0 MiB of the memory of cuda:0, and 512.0 MiB of 80.0 GiB are free"
    )
    assert caught.value.hint.startswith("nvidia-smi shows ")
