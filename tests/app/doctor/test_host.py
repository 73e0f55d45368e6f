from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest

from aoti_debug.app.doctor import doctor, host
from aoti_debug.app.doctor.doctor import Driver, Gpu, check_driver
from aoti_debug.app.doctor.host import MachineCheck, Status
from aoti_debug.base.machine import cache, compiler

H100 = Gpu("NVIDIA H100", (9, 0), 80 << 30)


def only(checks: Iterable[MachineCheck]) -> MachineCheck:
    (check,) = checks
    return check


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_all_checks_run_quickly() -> None:
    doctor.run_checks()  # compiles its probe
    began = time.monotonic()
    checks = doctor.run_checks()
    assert time.monotonic() - began < 10
    assert {"python", "compiler", "openmp", "torch", "shared memory", "runs", "temporary files", "cache"} <= {
        check.name for check in checks
    }
    assert all(check.found for check in checks)
    assert all(check.todo for check in checks if check.status is not Status.OK)


def test_a_machine_is_ready_unless_something_required_is_missing() -> None:
    wanted = MachineCheck("a", Status.MISSING, "nothing", "get it")
    assert doctor.is_ready([wanted, MachineCheck("b", Status.WARNING, "x", "y")])
    assert not doctor.is_ready([wanted, MachineCheck("c", Status.MISSING, "nothing", "get it", needed=True)])


# The compiler


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    check = only(host.compiler())
    assert (check.status, check.needed) == (Status.MISSING, True)
    assert "no-such-compiler" in check.found
    assert "CXX" in check.todo


def test_a_compiler_that_links_its_runtime_statically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = script(tmp_path / "g++", 'exec /usr/bin/g++ "$@" -static-libstdc++')
    monkeypatch.setattr(cache, "directory", lambda: tmp_path)
    monkeypatch.setenv("CXX", str(wrapper))
    check = only(host.compiler())
    assert (check.status, check.needed) == (Status.MISSING, True)
    assert "links the C++ runtime statically" in check.found
    assert "export CXX=/usr/bin/g++" in check.todo


def test_a_compiler_without_openmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = 'case "$*" in *-fopenmp*) echo "cannot find -lgomp" >&2; exit 1;; esac; exec /usr/bin/g++ "$@"'
    monkeypatch.setattr(cache, "directory", lambda: tmp_path)
    monkeypatch.setenv("CXX", str(script(tmp_path / "g++", fails)))
    compiled, openmp = host.compiler()
    assert compiled.status is Status.OK
    assert (openmp.status, openmp.needed) == (Status.MISSING, True)
    assert "cannot find -lgomp" in openmp.found


# Torch and triton


def fake_torch(folder: Path, version: str, cuda_version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").touch()
    (folder / "torch" / "version.py").write_text(f"__version__ = '{version}'\ncuda: Optional[str] = {cuda_version!r}\n")
    spec = type("Spec", (), {"origin": str(folder / "torch" / "__init__.py")})
    for module in (host, compiler):
        monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: spec if name == "torch" else None)


@pytest.mark.parametrize(
    ("version", "cuda_version", "status", "found"),
    [
        ("2.13.0+cpu", None, Status.OK, "2.13.0+cpu, built for the CPU"),
        ("2.11.0+cu130", "13.0", Status.OK, "2.11.0+cu130, built for CUDA 13.0"),
        ("2.10.1", None, Status.MISSING, "torch 2.10.1 is too old"),
        ("3.0.0", None, Status.WARNING, "3.0.0, built for the CPU"),
    ],
)
def test_versions_of_torch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    cuda_version: str | None,
    status: Status,
    found: str,
) -> None:
    fake_torch(tmp_path, version, cuda_version, monkeypatch)
    check = only(host.torch())
    assert check.status is status
    assert check.found.startswith(found)
    assert host.torch_cuda() == (cuda_version or "")


def test_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check = only(host.torch())
    assert (check.status, check.needed) == (Status.MISSING, True)
    assert "install torch" in check.todo


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        (["filelock", "triton==3.6.0; platform_system == 'Linux'"], Status.WARNING),
        (["triton==3.9.1"], Status.OK),
        ([], Status.OK),
    ],
)
def test_the_triton_that_torch_wants(monkeypatch: pytest.MonkeyPatch, wanted: list[str], status: Status) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "3.9.0")
    monkeypatch.setattr(metadata, "requires", lambda name: wanted)
    check = only(host.triton())
    assert check.status is status
    assert ("triton==3.6.0" in check.todo) == (status is Status.WARNING)


# The driver


@pytest.mark.parametrize(
    ("driver", "build", "status", "needed", "said"),
    [
        (Driver((13, 0), "580.65", 0, (H100,)), "13.0", Status.OK, False, "580.65, for CUDA up to 13.0"),
        (Driver((12, 8), "", 0, (H100,)), "13.0", Status.MISSING, True, "torch is built for CUDA 13.0"),
        (Driver((13, 0), "", 0, (H100,)), "12.8", Status.OK, False, "for CUDA up to 13.0"),
        (Driver((13, 0), "", 100, ()), "13.0", Status.WARNING, False, "no GPU can be seen"),
        (Driver((13, 0), "", 803, ()), "13.0", Status.MISSING, True, "library and kernel module differ"),
        (Driver((13, 0), "", 999, ()), "13.0", Status.MISSING, True, "cuInit fails with error 999"),
        (Driver((13, 0), "", 0, (H100,)), "", Status.WARNING, False, "torch is built for the CPU"),
    ],
)
def test_drivers(driver: Driver, build: str, status: Status, needed: bool, said: str) -> None:
    check = check_driver(driver, build)
    assert (check.status, check.needed) == (status, needed)
    assert said in check.found
    assert bool(check.todo) == (status is not Status.OK)


def test_gpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_driver", lambda: Driver((13, 0), "580.65", 0, (H100, H100)))
    monkeypatch.setattr(doctor, "torch_cuda", lambda: "13.0")
    gpus = list(doctor.driver())[1]
    assert gpus.found == "NVIDIA H100 (sm_90, 80 GiB), NVIDIA H100 (sm_90, 80 GiB)"


@pytest.mark.parametrize(("build", "status"), [("", Status.OK), ("13.0", Status.WARNING)])
def test_no_driver(monkeypatch: pytest.MonkeyPatch, build: str, status: Status) -> None:
    def not_there(name: str) -> ctypes.CDLL:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", not_there)
    monkeypatch.setattr(doctor, "torch_cuda", lambda: build)
    assert only(doctor.driver()).status is status


# Tools


@pytest.fixture
def cuda_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose torch is built for CUDA; its toolkit is the folder."""
    toolkit = tmp_path / "toolkit"
    for module in (doctor, host):
        monkeypatch.setattr(module, "torch_cuda", lambda: "13.0")
    monkeypatch.setattr(compiler, "toolkit_directories", lambda: (toolkit,))
    monkeypatch.setattr(compiler, "package_directories", lambda: ())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(host, "_program_of_package", lambda package, program: None)
    monkeypatch.setattr(host, "_triton_ptxas", lambda: None)
    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    monkeypatch.delenv("PTXAS", raising=False)
    return toolkit


def test_a_machine_for_the_cpu_needs_no_tools_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (doctor, host):
        monkeypatch.setattr(module, "torch_cuda", lambda: "")
    assert [*doctor.headers(), *host.ptxas(), *host.sanitizer(), *host.debugger()] == []


def test_tools_that_are_missing(cuda_torch: Path) -> None:
    for look in (doctor.headers, host.ptxas, host.sanitizer, host.debugger, host.symbolizer):
        check = only(look())
        assert (check.status, check.needed) == (Status.MISSING, False)
        assert check.todo


def test_tools_of_a_toolkit(cuda_torch: Path) -> None:
    script(cuda_torch / "bin/ptxas", 'echo "Cuda compilation tools, release 13.0, V13.0.88"')
    script(cuda_torch / "bin/compute-sanitizer", 'echo "NVIDIA (R) Compute Sanitizer"; echo "Version 2025.3.1"')
    script(cuda_torch / "bin/cuda-gdb", "")
    (cuda_torch / "include").mkdir()
    (cuda_torch / "include/cuda_runtime_api.h").touch()
    assert only(host.ptxas()).found == f"13.0.88: {cuda_torch}/bin/ptxas"
    assert only(host.sanitizer()).found == f"2025.3.1: {cuda_torch}/bin/compute-sanitizer"
    assert only(host.debugger()).status is Status.OK
    assert only(doctor.headers()).found == str(cuda_torch / "include")


def test_a_ptxas_that_is_not_tritons(cuda_torch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = script(cuda_torch / "own/ptxas", 'echo "release 12.8, V12.8.93"')
    other = script(cuda_torch / "other/ptxas", 'echo "release 13.0, V13.0.88"')
    monkeypatch.setattr(host, "_triton_ptxas", lambda: own)
    assert only(host.ptxas()).found == f"12.8.93: {own}"
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(other))
    check = only(host.ptxas())
    assert (check.status, check.found) == (Status.WARNING, f"{other} is 13.0.88, triton's own 12.8.93")
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(cuda_torch / "gone"))
    assert only(host.ptxas()).status is Status.MISSING


@pytest.mark.parametrize(
    ("scope", "capabilities", "status"),
    [("", 0, Status.OK), ("0", 0, Status.OK), ("1", 0, Status.OK), ("2", 0, Status.WARNING), ("2", 1 << 19, Status.OK)],
)
def test_whether_debuggers_may_watch(
    monkeypatch: pytest.MonkeyPatch, scope: str, capabilities: int, status: Status
) -> None:
    texts = {host.PTRACE_SCOPE: f"{scope}\n", Path("/proc/self/status"): f"CapEff:\t{capabilities:016x}\n"}
    monkeypatch.setattr(host, "_read", lambda path: texts.get(path, ""))
    assert only(host.tracing()).status is status


def test_counters_for_administrators(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {host.DRIVER_PARAMETERS: "ModifyDeviceFiles: 1\nRmProfilingAdminOnly: 1\n"}
    monkeypatch.setattr(host, "_read", lambda path: texts.get(path, ""))
    _, counters = host.tracing()
    assert counters.status is Status.WARNING
    assert "NVreg_RestrictProfilingToAdminUsers=0" in counters.todo


# Memory and disks


def test_little_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 64 << 20, "total": 64 << 20})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    check = only(host.shared_memory())
    assert (check.status, check.found) == (Status.WARNING, "/dev/shm: 64 MiB of 64 MiB free")
    assert "--shm-size" in check.todo


def test_no_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "SHARED_MEMORY", tmp_path / "none")
    assert only(host.shared_memory()).status is Status.MISSING


def test_directories_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTI_DEBUG_DIR", "/proc/runs")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/proc/triton")
    checks = {check.name: check for check in host.directories()}
    for name in ("runs", "TRITON_CACHE_DIR"):
        assert (checks[name].status, checks[name].needed) == (Status.MISSING, True)
        assert checks[name].todo
    assert checks["temporary files"].status is not Status.MISSING


def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    monkeypatch.setenv("AOTI_DEBUG_DIR", str(tmp_path / "a" / "b"))
    check = next(check for check in host.directories() if check.name == "runs")
    assert (check.status, check.found) == (Status.WARNING, f"{tmp_path / 'a' / 'b'}: 1 MiB free")
    assert not os.path.exists(tmp_path / "a")
