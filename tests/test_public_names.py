"""What `import aoti_debug` offers: each name works without another import, and none is imported before it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import aoti_debug
from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import ArtifactError
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site
from tests.saved_tensors import described, save

SAVED = "tensors/0/0000_k/before_launch_k_x_cpu.safetensors"
VALUE = torch.arange(6.0).reshape(2, 3).t()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that died in its first launch, whose input was saved."""
    writer = JournalWriter(level=1)
    writer.call_begin()
    writer.launch_begin(0, 0, described(VALUE))
    writer.tensor_file(0, 0, Phase.BEFORE, SAVED, size=24)
    ended = Exit(ExitKind.FAULT, "killed by SIGSEGV", signal="SIGSEGV")
    path = run_directory(tmp_path, make_manifest(site("k", arg("x"))), writer, exit=ended)
    save(path / SAVED, "x", VALUE)
    return path


def test_build(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"none\.pt2 does not exist"):
        aoti_debug.build(tmp_path / "none.pt2")


def test_open_run(run: Path) -> None:
    assert [launch.kernel for launch in aoti_debug.open_run(run).launches] == ["k"]


def test_diagnose(run: Path) -> None:
    verdict = aoti_debug.diagnose(aoti_debug.open_run(run))
    assert verdict is not None
    assert verdict.launch is not None
    assert verdict.launch.id == "0.0"


def test_load_file(run: Path) -> None:
    loaded = aoti_debug.load_file(run / SAVED)
    assert torch.equal(loaded, VALUE)
    assert loaded.stride() == VALUE.stride()


def test_load_launch(run: Path) -> None:
    opened = aoti_debug.open_run(run)
    loaded = aoti_debug.load_launch(opened, opened.launch("0.0"), Phase.BEFORE)
    assert loaded.keys() == {"x"}
    assert torch.equal(loaded["x"], VALUE)


def test_all_names_are_there() -> None:
    assert all(getattr(aoti_debug, name) is not None for name in aoti_debug.__all__)
    functions = {
        "build",
        "compare",
        "debug",
        "diagnose",
        "equal",
        "inspect",
        "inspect_modules",
        "inspector",
        "invariance",
        "invariance_by_size",
        "load_file",
        "load_ipython_extension",
        "load_launch",
        "open_run",
        "precision",
        "print_",
        "record",
        "repro",
        "triage",
    }
    reading = {"load_file", "load_launch", "open_run"}
    assert set(aoti_debug.__all__) == {
        "__version__",
        "BuildSettings",
        "RoundingOptions",
        "SampleOptions",
        *functions,
        *reading,
    }


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'aoti_debug' has no attribute 'no_such_name'"):
        _ = aoti_debug.no_such_name


@pytest.mark.parametrize("code", ["import aoti_debug", "from aoti_debug import open_run, diagnose, build"])
def test_nothing_imports_torch_before_it_is_needed(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import sys; {code}; sys.exit('torch' in sys.modules)"], check=False)
    assert done.returncode == 0


def test_the_package_alone_imports_none_of_its_modules() -> None:
    code = "import sys, aoti_debug; sys.exit(any(name.startswith('aoti_debug.') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
