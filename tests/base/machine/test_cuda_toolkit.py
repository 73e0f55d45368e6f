from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

from aoti_debug.base.machine import cuda_toolkit


def file(path: Path, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing of CUDA: programs lie in `path`, toolkits in `local`, Python packages in `site`."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(cuda_toolkit, "DEFAULT", tmp_path / "local/cuda")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    return tmp_path


def test_a_machine_without_a_toolkit(machine: Path) -> None:
    assert cuda_toolkit.toolkit_directories() == (machine / "local/cuda",)
    assert cuda_toolkit.package_directories() == ()
    assert cuda_toolkit.find_header_directory("cuda.h") is None
    assert cuda_toolkit.find_directory("lib64") is None
    assert cuda_toolkit.find_program("ptxas") is None


def test_toolkits_in_order(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("12.8", "13.0"):
        (machine / f"local/cuda-{version}").mkdir(parents=True)
    (machine / "path").mkdir()
    (machine / "path/nvcc").symlink_to(file(machine / "of_nvcc/bin/nvcc", 0o755))
    monkeypatch.setenv("CUDA_PATH", str(machine / "path_named"))
    monkeypatch.setenv("CUDA_HOME", str(machine / "home"))
    directories = [str(path.relative_to(machine)) for path in cuda_toolkit.toolkit_directories()]
    assert directories == ["home", "path_named", "of_nvcc", "local/cuda", "local/cuda-13.0", "local/cuda-12.8"]


def test_a_toolkit_counts_once(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(machine / "local/cuda"))
    assert cuda_toolkit.toolkit_directories() == (machine / "local/cuda",)


def test_headers_of_a_toolkit_come_before_those_of_a_package(machine: Path) -> None:
    packaged = file(machine / "site/nvidia/cuda_runtime/include/cuda.h").parent
    file(machine / "site/nvidia/cublas/include/cublas.h")
    assert cuda_toolkit.find_header_directory("cuda.h") == packaged
    ours = file(machine / "local/cuda/include/cuda.h").parent
    assert cuda_toolkit.find_header_directory("cuda.h") == ours


def test_directories_are_those_of_toolkits_alone(machine: Path) -> None:
    file(machine / "site/nvidia/cublas/include/cublas.h")
    assert cuda_toolkit.find_directory("include") is None
    (machine / "local/cuda-13.0/targets/x/lib").mkdir(parents=True)
    assert cuda_toolkit.find_directory("targets/x/lib") == machine / "local/cuda-13.0/targets/x/lib"


def test_programs_on_path_come_first_and_must_be_executable(machine: Path) -> None:
    packaged = file(machine / "site/nvidia/cu13/bin/ptxas", 0o755)
    file(machine / "local/cuda/bin/ptxas", 0o644)
    assert cuda_toolkit.find_program("ptxas") == packaged
    (machine / "local/cuda/bin/ptxas").chmod(0o755)
    assert cuda_toolkit.find_program("ptxas") == machine / "local/cuda/bin/ptxas"
    on_path = file(machine / "path/ptxas", 0o755)
    assert cuda_toolkit.find_program("ptxas") == on_path


def test_what_triton_brings(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = file(machine / "site/triton/__init__.py")
    spec = importlib.machinery.ModuleSpec("triton", None, origin=str(package))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "triton" else None)
    assert cuda_toolkit.triton_directory() is None
    (package.parent / "backends/nvidia").mkdir(parents=True)
    assert cuda_toolkit.triton_directory() == package.parent / "backends/nvidia"
