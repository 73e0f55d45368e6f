from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.package.pt2 import archive, kernel_hashes
from aoti_debug.package.weights_file import KernelMatch
from tests import archives

KERNELS = """
extern "C" void cpp_fused_relu_0(float* x) { *x = %s; }
extern "C" void cpp_fused_add_1(float* x) { *x += 1; }
extern "C" int cuda_fused_mm_0(int x) { return x * 3; }
extern "C" int AOTInductorModelCreate(int x) { return x * %s; }
"""


def library(path: Path, *numbers: int) -> Path:
    path.with_suffix(".cpp").write_text(KERNELS % numbers)
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", path.with_suffix(".cpp"), "-o", path], check=True)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sameness")
    library(path / "first.so", 2, 5)
    library(path / "other_runtime.so", 2, 7)
    library(path / "other_kernel.so", 3, 5)
    return path


def package(folder: Path, tmp_path: Path, code: str, cubin: bytes, suffix: str = ".so") -> archive.Artifact:
    members = {
        **archives.FRAME,
        f"{archives.MODEL}c1.wrapper{suffix}": (folder / code).read_bytes(),
        f"{archives.MODEL}c2.cubin": cubin,
        "data/aotinductor/other/c3.cubin": b"of another model",
    }
    return archive.inspect(archives.write(tmp_path / f"{code}.pt2", members))


def test_kernels_are_compared_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    before = kernel_hashes.hash_package(package(folder, tmp_path, "first.so", b"code"), "model")
    assert sorted(before) == ["c2.cubin", "cpp_fused_add_1", "cpp_fused_relu_0", "cuda_fused_mm_0"]
    same = kernel_hashes.hash_package(package(folder, tmp_path, "other_runtime.so", b"code", ".original"), "model")
    assert kernel_hashes.compare(before, same) == KernelMatch(4, ())
    assert str(kernel_hashes.compare(before, same)) == "4 of 4 kernels identical to the original"


def test_another_kernel_is_named(folder: Path, tmp_path: Path) -> None:
    before = kernel_hashes.hash_package(package(folder, tmp_path, "first.so", b"code"), "model")
    other = kernel_hashes.hash_package(package(folder, tmp_path, "other_kernel.so", b"another"), "model")
    assert kernel_hashes.compare(before, other) == KernelMatch(4, ("c2.cubin", "cpp_fused_relu_0"))
    assert str(kernel_hashes.compare(before, other)) == "2 of 4 kernels identical to the original"
    assert kernel_hashes.compare(before, {}).different == tuple(sorted(before))


def test_files_have_the_hashes_of_their_members(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "c2.cubin").write_bytes(b"code")
    (tmp_path / "c1.json").write_bytes(b"{}")
    files = (folder / "first.so", tmp_path / "c2.cubin", tmp_path / "c1.json")
    assert kernel_hashes.hash_files(files) == kernel_hashes.hash_package(
        package(folder, tmp_path, "first.so", b"code"), "model"
    )


def test_what_is_appended_to_a_library_is_not_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "long.so").write_bytes((folder / "first.so").read_bytes() + b"weights" * 1000)
    before = kernel_hashes.hash_package(package(folder, tmp_path, "first.so", b"code"), "model")
    assert kernel_hashes.hash_package(package(tmp_path, tmp_path, "long.so", b"code"), "model") == before


@pytest.mark.parametrize("suffix", archive.KERNEL_BINARIES)
def test_kernel_binaries_of_every_kind_count(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"c2{suffix}").write_bytes(b"code")
    assert kernel_hashes.hash_files([tmp_path / f"c2{suffix}"]) == {f"c2{suffix}": hashlib.sha256(b"code").hexdigest()}


def test_a_file_that_is_not_a_library_is_named(tmp_path: Path) -> None:
    (tmp_path / "c1.so").write_bytes(b"no library")
    with pytest.raises(ArtifactError, match=r"c1\.so is no library: no ELF file of 64 bits"):
        kernel_hashes.hash_files([tmp_path / "c1.so"])


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_the_hash_of_a_binary_does_not_depend_on_its_source_path(tmp_path: Path) -> None:
    binaries = {}
    for name, body in (("first", "x + 1"), ("second", "x + 1"), ("changed", "x + 2")):
        code = f"int kernel(int x) {{ return {body}; }}"
        source = tmp_path / name / f"{name}.c"
        source.parent.mkdir()
        source.write_text("\n" * len(name) + f'__attribute__((section(".text.debug_scale"))) {code}\n')
        binary = source.with_suffix(".cubin")
        subprocess.run(["gcc", "-O1", "-g", "-c", str(source), "-o", str(binary)], check=True)
        binaries[name] = kernel_hashes.hash_binary(binary)
    assert binaries["first"][0] != binaries["second"][0]
    assert binaries["first"][1] == binaries["second"][1] != binaries["changed"][1]


def test_a_binary_that_is_not_elf_is_hashed_whole(tmp_path: Path) -> None:
    (tmp_path / "k.fatbin").write_bytes(b"code")
    assert kernel_hashes.hash_binary(tmp_path / "k.fatbin")[1] == hashlib.sha256(b"code").hexdigest()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_a_binary_without_sections_is_hashed_whole(tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text("int kernel(int x) { return x; }\n")
    binary = tmp_path / "k.cubin"
    subprocess.run(["gcc", "-c", str(tmp_path / "k.c"), "-o", str(binary)], check=True)
    data = bytearray(binary.read_bytes())
    data[40:48], data[60:64] = bytes(8), bytes(4)  # where the table of sections is, how long, and which has the names
    binary.write_bytes(data)
    assert kernel_hashes.hash_binary(binary) == (hashlib.sha256(data).hexdigest(),) * 2
