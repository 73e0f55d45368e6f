"""`pytest --aoti-debug`, in processes of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from aoti_debug.app.python import pytest_plugin
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.rundir.run_directory import open_run
from tests.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TESTS = """
import pytest, torch
from tests import faulty_ops

X = torch.linspace(-1, 1, 8).reshape(2, 4)

@pytest.fixture(scope="session")
def model():
    return torch._inductor.aoti_load_package({package!r})

def test_good(model):
    assert model(X).isfinite().all()

def test_wrong(model):
    assert model(X).sum() == 17

def test_nan(model):
    assert model(X * float("nan")).isnan().all()

def test_raises(model, monkeypatch):
    monkeypatch.setenv("FAULTY_OPS", "raise")
    model(X)

def test_no_model():
    assert 0 == 1
"""


def run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    installed = {point.value for point in metadata.entry_points(group="pytest11")}
    plugin = [] if pytest_plugin.__name__ in installed else ["-p", pytest_plugin.__name__]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AOTI_DEBUG_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "--rootdir", str(folder), *words],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(faulty_package: Path, tmp_path: Path) -> Path:
    (tmp_path / "test_model.py").write_text(TESTS.format(package=str(faulty_package)))
    return tmp_path


def sections(output: str) -> dict[str, str]:
    """The parts of a session's output, by their titles."""
    parts = re.split(r"^[=_]{3,} (.+?) [=_]{3,}$", output, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_a_session(folder: Path) -> None:
    done = run(folder, "--aoti-debug", "--aoti-debug-triages", "1")
    assert done.returncode == 1, done.stdout
    found = sections(done.stdout)
    assert "test_good" not in found
    wrong, raises = found["test_wrong"], found["test_raises"]
    assert "---- aoti-debug ----" in wrong
    assert "NO FAULT 4 launches; values not recorded\n" in wrong
    assert re.search(rf"^triage of call 0: {folder}/aoti-debug/triages/\S+$", wrong, re.MULTILINE)
    assert re.search(rf"^  report   {folder}/aoti-debug/triages/\S+/report/index.html$", wrong, re.MULTILINE)
    assert "FAULT ValueError: the answer is not 42\n  at    0.2 faulty::act.default  " in raises
    assert "triage of call" not in raises
    assert re.search(r"^  next  aoti-debug triage \S+/packages/\S+\.pt2 --inputs \S+/call-0\.pt$", raises, re.MULTILINE)
    assert "recorded_model.py:" not in raises.partition("E  ")[0]
    assert "aoti-debug ---" not in found["test_no_model"]
    passed = found["aoti-debug: findings in tests that passed"]
    assert "test_model.py::test_nan\n  NOT FINITE call 0 returned values that are not finite\n" in passed
    runs = [path for path in (folder / "aoti-debug" / "runs").iterdir() if not path.is_symlink()]
    assert len(runs) == 3
    assert not any((path / "calls").exists() for path in runs)


def test_a_crash(folder: Path) -> None:
    done = run(folder, "--aoti-debug", "-k", "good", FAULTY_OPS="segv")
    assert done.returncode < 0
    verdict = diagnose(open_run(base=folder / "aoti-debug" / "runs"))
    assert verdict is not None
    assert [launch.kernel for launch in verdict.suspects] == ["faulty::act.default"]


def test_wrong_usage(folder: Path) -> None:
    (folder / "file").touch()
    done = run(folder, "--aoti-debug", AOTI_DEBUG_DIR="file")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"--aoti-debug: cannot make {folder}/file: " in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_without_the_option_nothing_is_imported(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\ndef test() -> None:\n"
        "    names = [name for name in sys.modules if name.partition('.')[0] in ('torch', 'aoti_debug')]\n"
        f"    assert [name for name in names if not {pytest_plugin.__name__!r}.startswith(name)] == []\n"
    )
    done = run(tmp_path, "-q")
    assert done.returncode == 0, done.stdout
    assert "aoti-debug" not in done.stdout


def test_the_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"aoti_debug": pytest_plugin.__name__}
