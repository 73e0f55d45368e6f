from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine import compiler
from aoti_debug.base.machine.compiler import Processor, installed_versions, this_processor
from tests.paths import ROOT

X86 = "processor\t: 0\nmodel name\t: A Xeon\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nmodel name\t: B\nflags\t\t: fpu\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (X86, Processor("A Xeon", frozenset({"fpu", "avx2"}))),
        (ARM, Processor(platform.machine(), frozenset({"fp", "asimd"}))),
        ("", Processor(platform.machine(), frozenset())),
    ],
)
def test_the_first_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, expected: Processor) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(compiler, "CPUINFO", tmp_path / "cpuinfo")
    assert this_processor() == expected


def test_a_system_that_describes_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiler, "CPUINFO", tmp_path / "none")
    assert this_processor() == Processor(platform.machine(), frozenset())


def test_only_what_is_installed_has_a_version() -> None:
    found = installed_versions("torch", "no-such-package")
    assert list(found) == ["Python", "system", "torch"]
    assert found["Python"] == platform.python_version()
    assert torch.__version__.startswith(found["torch"].partition("+")[0])


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
    monkeypatch.setattr(compiler, "DEFAULT", tmp_path / "local/cuda")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    return tmp_path


def test_a_machine_without_a_toolkit(machine: Path) -> None:
    assert compiler.toolkit_directories() == (machine / "local/cuda",)
    assert compiler.package_directories() == ()
    assert compiler.find_header_directory("cuda.h") is None
    assert compiler.find_directory("lib64") is None
    assert compiler.find_program("ptxas") is None


def test_toolkits_in_order(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("12.8", "13.0"):
        (machine / f"local/cuda-{version}").mkdir(parents=True)
    (machine / "path").mkdir()
    (machine / "path/nvcc").symlink_to(file(machine / "of_nvcc/bin/nvcc", 0o755))
    monkeypatch.setenv("CUDA_PATH", str(machine / "path_named"))
    monkeypatch.setenv("CUDA_HOME", str(machine / "home"))
    directories = [str(path.relative_to(machine)) for path in compiler.toolkit_directories()]
    assert directories == ["home", "path_named", "of_nvcc", "local/cuda", "local/cuda-13.0", "local/cuda-12.8"]


def test_a_toolkit_counts_once(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(machine / "local/cuda"))
    assert compiler.toolkit_directories() == (machine / "local/cuda",)


def test_headers_of_a_toolkit_come_before_those_of_a_package(machine: Path) -> None:
    packaged = file(machine / "site/nvidia/cuda_runtime/include/cuda.h").parent
    file(machine / "site/nvidia/cublas/include/cublas.h")
    assert compiler.find_header_directory("cuda.h") == packaged
    ours = file(machine / "local/cuda/include/cuda.h").parent
    assert compiler.find_header_directory("cuda.h") == ours


def test_directories_are_those_of_toolkits_alone(machine: Path) -> None:
    file(machine / "site/nvidia/cublas/include/cublas.h")
    assert compiler.find_directory("include") is None
    (machine / "local/cuda-13.0/targets/x/lib").mkdir(parents=True)
    assert compiler.find_directory("targets/x/lib") == machine / "local/cuda-13.0/targets/x/lib"


def test_programs_on_path_come_first_and_must_be_executable(machine: Path) -> None:
    packaged = file(machine / "site/nvidia/cu13/bin/ptxas", 0o755)
    file(machine / "local/cuda/bin/ptxas", 0o644)
    assert compiler.find_program("ptxas") == packaged
    (machine / "local/cuda/bin/ptxas").chmod(0o755)
    assert compiler.find_program("ptxas") == machine / "local/cuda/bin/ptxas"
    on_path = file(machine / "path/ptxas", 0o755)
    assert compiler.find_program("ptxas") == on_path


def test_what_triton_brings(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = file(machine / "site/triton/__init__.py")
    spec = importlib.machinery.ModuleSpec("triton", None, origin=str(package))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "triton" else None)
    assert compiler.triton_directory() is None
    (package.parent / "backends/nvidia").mkdir(parents=True)
    assert compiler.triton_directory() == package.parent / "backends/nvidia"


HINT = "use the system's compiler: export CXX=/usr/bin/g++"

needs_system_compiler = pytest.mark.skipif(
    not os.path.exists("/usr/bin/g++"), reason="the hints name /usr/bin/g++, which is not there"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_finds_the_compiler_that_inductor_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    gxx = compiler.find_compiler()
    assert gxx.path == shutil.which("g++")
    assert gxx.header_suffix == (".pch" if gxx.is_clang else ".gch")


@pytest.mark.parametrize(("refused", "linker"), [("none", (compiler.FASTER_LINKER,)), (compiler.FASTER_LINKER, ())])
def test_a_faster_linker_is_used_where_it_links(tmp_path: Path, refused: str, linker: tuple[str, ...]) -> None:
    if platform.machine() != "x86_64" or shutil.which("ld.gold") is None:
        pytest.skip("no other linker here")
    text = f'case "$*" in *{refused}*) exit 1;; esac; exec {shutil.which("g++")} "$@"'
    path = str(script(tmp_path / "any-g++", text))
    assert compiler.check_compiler(path).linker == linker
    assert compiler.check_compiler(path).linker == linker  # from the cache


@needs_system_compiler
def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    with pytest.raises(ToolchainError) as caught:
        compiler.find_compiler()
    assert (str(caught.value), caught.value.hint) == (f"no C++ compiler: {tmp_path}/none is not there", HINT)


@needs_system_compiler
def test_a_compiler_that_links_the_runtime_statically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(script(tmp_path / "static-g++", 'exec /usr/bin/g++ -static-libstdc++ "$@"')))
    for _ in range(2):  # the second time from the cache
        with pytest.raises(ToolchainError) as caught:
            compiler.find_compiler()
        assert str(caught.value) == (
            f"{tmp_path}/static-g++ links the C++ runtime statically: "
            "packages that it builds crash when torch loads them"
        )
        assert caught.value.hint == HINT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo broken >&2; exit 3", "the C++ compiler {path} does not run: broken"),
        (
            'if [ "$1" = --version ]; then echo g++ 12; else echo no libraries >&2; exit 1; fi',
            "the C++ compiler {path} cannot make a shared library:\nno libraries",
        ),
    ],
)
def test_a_broken_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    path = script(tmp_path / "broken-g++", text)
    monkeypatch.setenv("CXX", str(path))
    with pytest.raises(ToolchainError) as caught:
        compiler.find_compiler()
    assert str(caught.value) == message.format(path=path)


def test_a_replaced_compiler_is_checked_again(tmp_path: Path) -> None:
    path = script(tmp_path / "any-g++", f'exec {shutil.which("g++")} "$@"')
    compiler.check_compiler(str(path))
    script(path, 'if [ "$1" = --version ]; then exec g++ --version; fi; exit 1')
    with pytest.raises(ToolchainError, match="cannot make a shared library"):
        compiler.check_compiler(str(path))


def find_read_torch(site: Path) -> str:
    """What find_torch says in an interpreter that sees only the packages in `site`."""
    program = f"""
import sys
sys.path = [{str(site)!r}, *(p for p in sys.path if "site-packages" not in p), {str(ROOT)!r}]
from aoti_debug.base.machine import compiler
from aoti_debug.base.errors import ToolchainError
try:
    print(compiler.find_torch().version, "torch" in sys.modules)
except ToolchainError as error:
    print(error, "|", error.hint)
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def fake_torch(site: Path, version: str) -> Path:
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("raise RuntimeError('imported')")
    (site / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")
    return site


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.13.0+cpu", "2.13.0+cpu False"),
        ("2.11.0a0+git1234", "2.11.0a0+git1234 False"),
        ("3.0.0", "3.0.0 False"),
        (
            "2.10.1+cu128",
            "torch 2.10.1+cu128 is too old: it cannot write a package's C++ sources with their provenance | "
            "install torch 2.11 or newer",
        ),
    ],
)
def test_torch_is_read_without_importing_it(tmp_path: Path, version: str, said: str) -> None:
    assert find_read_torch(fake_torch(tmp_path, version)) == said


def test_no_torch(tmp_path: Path) -> None:
    assert find_read_torch(tmp_path) == (
        "torch is not installed in this Python environment | install torch 2.11 or newer"
    )


def test_another_build_of_torch_has_another_fingerprint(tmp_path: Path) -> None:
    first = compiler.find_torch()
    assert first == compiler.find_torch()
    other = compiler.read_torch(fake_torch(tmp_path, "2.13.0") / "torch")
    assert other.version == "2.13.0"
    assert other.fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("line", "has_cuda"), [("cuda: Optional[str] = None", False), ("cuda: Optional[str] = '13.0'", True), ("", False)]
)
def test_a_torch_with_cuda_says_so(tmp_path: Path, line: str, has_cuda: bool) -> None:
    torch = fake_torch(tmp_path, "2.13.0") / "torch"
    with (torch / "version.py").open("a") as file:
        file.write(f"{line}\n")
    assert compiler.read_torch(torch).has_cuda is has_cuda
