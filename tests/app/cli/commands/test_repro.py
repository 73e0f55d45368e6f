from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.base.machine.files import results_home
from aoti_debug.package.manifest import Form, Kind, Role
from aoti_debug.runs.rundir.run_directory import RunDir
from tests import started_modules
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor
from tests.operator_schemas import registered
from tests.schema import DOCS, problems

SITES = (
    site("aoti_torch_cpu_relu_out", arg("buf0", Role.OUT), arg("x"), op="aten.relu.out"),
    site("aoti_torch_item_bool", arg("buf1"), kind=Kind.ITEM),
    site("triton_poi_fused_0", arg("in_ptr0", form=Form.TENSOR), kind=Kind.TRITON),
)
MANIFEST = replace(make_manifest(*SITES), operators=registered("aten.relu.out"))


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of runs with one run, which saved nothing and whose package is not known."""
    journal = JournalWriter()
    journal.launch(0, 0, tensor(4), tensor(4, data_ptr=0x2000))
    journal.launch(1, 1, tensor(1))
    journal.launch(2, 2, tensor(1))
    run_directory(tmp_path / "runs", MANIFEST, journal)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AOTI_DEBUG_DIR", "runs")
    return tmp_path


def test_an_unknown_kernel_lists_the_near_ones(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["repro", "aoti_torch_gpu_relu"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == "error: 'aoti_torch_gpu_relu' is neither a kernel nor a launch of run 20261120-231501-4711"
    assert hint.startswith("hint: there is aoti_torch_cpu_relu_out, ")
    assert sorted(p.name for p in base.iterdir()) == ["runs"]


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        ("aoti_torch_item_bool", "(item), cannot be replayed alone: it only reads a number from a tensor"),
        ("triton_poi_fused_0", "(triton), cannot be replayed alone: it starts no kernel on a GPU"),
    ],
)
def test_other_kinds_say_what_is_missing(base: Path, capsys: pytest.CaptureFixture[str], kernel: str, why: str) -> None:
    assert main.run(["repro", kernel]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert "hint: aoti-debug show 0." in said


def test_a_run_that_cannot_be_repeated(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["repro", "aoti_torch_cpu_relu_out"]) == 6
    said = capsys.readouterr().err
    assert "saved no tensors of launch 0.0, and does not say where its package is" in said
    assert "AOTI_DEBUG_LEVEL=1 AOTI_DEBUG_LAUNCH=0.0" in said


def test_a_program_that_passed_its_own_inputs(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = JournalWriter()
    journal.launch(0, 0, tensor(4), tensor(4, data_ptr=0x2000))
    run = run_directory(base / "runs", MANIFEST, journal, name="20261120-231502-1", host="embedded")
    (run / "package.pt2").touch()
    assert main.run(["repro", "0.0"]) == 6
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert error.endswith("the program that loaded the package passed its own inputs, which are not recorded")
    assert hint == "hint: AOTI_DEBUG_LAUNCH=0.0 AOTI_DEBUG_LEVEL=1 aoti-debug run m.pt2, then aoti-debug repro"


def test_a_launch_that_is_not_there(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["repro", "aoti_torch_cpu_relu_out", "--launch", "9"]) == 6
    assert "has no launch 0.9" in capsys.readouterr().err
    assert main.run(["repro", "aoti_torch_cpu_relu_out", "--launch", "x.y"]) == 2
    assert "'x.y' is no launch" in capsys.readouterr().err


def test_without_a_launch_there_must_be_a_fault(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["repro"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == "error: no launch of run 20261120-231501-4711 is known to be at fault"
    assert hint == "hint: name a kernel or a launch: aoti-debug show"


def test_several_kernels_are_listed(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["repro", "aoti_*"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == "error: 'aoti_*' names launches of 2 kernels"
    assert set(hint.removeprefix("hint: there is ").split(", ")) == {"aoti_torch_cpu_relu_out", "aoti_torch_item_bool"}


def test_an_existing_folder_is_left_alone(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("aoti-debug/repros/repro_aoti_torch_cpu_relu_out_0.0")
    folder.mkdir(parents=True)
    results_home.mark(Path("aoti-debug"))
    assert main.run(["repro", "aoti_torch_cpu_relu_out"]) == 2
    assert f"error: {folder} already exists\n" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_no_runs_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["repro", "k"]) == 6
    assert "error: no runs in aoti-debug/runs" in capsys.readouterr().err


def test_what_is_printed(
    saved: Callable[[str], RunDir],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = saved("mixed")
    monkeypatch.chdir(tmp_path)
    assert main.run(["repro", "aoti_torch_cpu_addmm_out", "--run", str(run.path), "-o", "here"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    size = sum(path.stat().st_size for path in Path("here/tensors").iterdir())
    assert said.out.splitlines() == [
        "here",
        f"  launch 0.0 of aoti_torch_cpu_addmm_out, 4 tensors, {size / 1024:.1f} KiB, from {run.path.name}",
        "next: python here/repro.py",
    ]
    assert main.run(["repro", "0.0", "--run", str(run.path), "-o", "here", "--force", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert problems(found, json.loads((DOCS / "repro.schema.json").read_text())) == []
    assert (found["kernel"], found["tensors"], found["bytes"]) == ("aoti_torch_cpu_addmm_out", 4, size)
    assert Path(found["script"]) == tmp_path / "here/repro.py"


@pytest.mark.parametrize(
    ("text", "said"), [("1X", "1X is not a number of bytes"), ("-1", "-1 is not a number of bytes")]
)
def test_a_size_that_is_none(capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    assert main.run(["repro", "k", "--single-file", "--max-size", text]) == 2
    assert said in capsys.readouterr().err


def test_one_file(
    saved: Callable[[str], RunDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(saved("mixed").path)
    assert main.run(["repro", "cpp_fused_relu_1", "--run", run, "--single-file"]) == 0
    (script,) = Path("aoti-debug/repros").iterdir()
    assert capsys.readouterr().out.splitlines()[-1] == f"next: python {script}"
    assert script.name.startswith("repro_cpp_fused_relu_1_0.")
    assert script.suffix == ".py"
    assert main.run(["repro", "cpp_fused_relu_1", "--run", run, "--single-file", "-o", "x.py", "--max-size", "1K"]) == 2
    said = capsys.readouterr().err
    assert "would carry more than" in said
    assert "leave --single-file out" in said
    assert not (tmp_path / "x.py").exists()


def test_a_start_imports_what_it_needs() -> None:
    """Where no bytecode is kept, every module that is imported is compiled at every start."""
    unused = (
        *("torch", "numpy", "jinja2", "pygments", "concurrent", "difflib", "ctypes", "subprocess", "base64"),
        *(
            "aoti_debug.views.report",
            "aoti_debug.runs.ranks",
            "aoti_debug.base.native",
            "aoti_debug.instrument.builder",
            "aoti_debug.instrument.frontend",
        ),
        *(
            "aoti_debug.runs.diagnosis.diagnose",
            "aoti_debug.runs.diagnosis.rescue",
            "aoti_debug.repro.templates.unpack",
        ),
    )
    assert started_modules.imported("import aoti_debug.app.cli.commands.repro", unused) == []
