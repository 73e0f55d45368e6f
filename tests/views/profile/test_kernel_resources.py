"""Registers and shared memory of binaries, beside what NVIDIA's tool says of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from aoti_debug.base.machine import compiler
from aoti_debug.views.profile.device_kernel import KernelResources, kernel_resources

PTX = Path(__file__).with_name("scale.ptx")
_BUNDLED = compiler.triton_directory()
TOOLS = None if _BUNDLED is None or not (_BUNDLED / "bin" / "ptxas").is_file() else _BUNDLED / "bin"
needs_ptxas = pytest.mark.skipif(TOOLS is None, reason="Triton, which contains ptxas and cuobjdump, is not installed")


def assembled(folder: Path, assembler: str, architecture: int) -> Path:
    assert TOOLS is not None
    if not (TOOLS / assembler).is_file():
        pytest.skip(f"this Triton has no {assembler}")
    path = folder / "scale.cubin"
    subprocess.run([TOOLS / assembler, f"-arch=sm_{architecture}", PTX, "-o", path], check=True)
    return path


@needs_ptxas
@pytest.mark.parametrize(
    ("assembler", "architecture"),
    [("ptxas", 80), ("ptxas", 86), ("ptxas", 89), ("ptxas", 90), ("ptxas-blackwell", 100), ("ptxas-blackwell", 120)],
)
def test_the_numbers_of_cuobjdump(assembler: str, architecture: int, tmp_path: Path) -> None:
    path = assembled(tmp_path, assembler, architecture)
    assert TOOLS is not None
    said = subprocess.run(
        [TOOLS / "cuobjdump", "--dump-resource-usage", path], capture_output=True, text=True, check=True
    ).stdout
    registers = {name: int(count) for name, count in re.findall(r"Function (\w+):\s+REG:(\d+)", said)}
    assert set(registers) == {"scale", "other"}
    binary = path.read_bytes()
    for name, shared in (("scale", 2048), ("other", 0)):  # bytes in the PTX
        assert kernel_resources(binary, name) == KernelResources(architecture, registers[name], shared)
    assert kernel_resources(binary, "missing") is None


@needs_ptxas
def test_a_binary_that_is_cut_off(tmp_path: Path) -> None:
    binary = assembled(tmp_path, "ptxas", 80).read_bytes()
    assert {kernel_resources(binary[:size], "scale") for size in range(len(binary))} == {None}


@pytest.mark.parametrize("binary", [b"", b"\x7fELF", Path("/bin/sh").read_bytes(), b"\x89PNG" * 99])
def test_no_binary_of_a_gpu(binary: bytes) -> None:
    assert kernel_resources(binary, "scale") is None
