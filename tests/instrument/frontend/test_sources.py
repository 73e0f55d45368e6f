"""The commands that torch 2.13 and 2.11 note at the end of a wrapper, as flags for this machine."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError, ToolchainError
from aoti_debug.base.machine import compiler
from aoti_debug.instrument.frontend import sources
from aoti_debug.instrument.frontend.sources import Flags
from aoti_debug.package.pt2.extract import FilePart
from tests import paths
from tests.unpacked_archive import COMMANDS, KERNELS, WRAPPER, unpacked
from tests.wrong_types import assert_refused


def test_reads_an_unpacked_archive(tmp_path: Path) -> None:
    unpacked_sources = sources.read(unpacked(tmp_path), wrapper_opt="O1")
    assert (unpacked_sources.stem, unpacked_sources.device, unpacked_sources.wrapper_opt) == ("c1.wrapper", "cpu", "O1")
    assert (unpacked_sources.wrapper, unpacked_sources.kernels) == (WRAPPER, f"{KERNELS}\n")
    assert (unpacked_sources.extern_nodes, unpacked_sources.provenance) == ('{"nodes": []}', "{}")
    assert [path.name for path in unpacked_sources.objects] == ["c2.weights.o"]
    assert [path.name for path in unpacked_sources.shipped] == [
        "c1.wrapper.json",
        "c1.wrapper_metadata.json",
        "triton_poi_fused_0.cubin",
    ]
    assert unpacked_sources.mapped_weights is None
    assert unpacked_sources.compile_flags == Flags(
        compiler="g++",
        definitions=("STANDALONE_TORCH_HEADER", "C10_USING_CUSTOM_GENERATED_MACROS"),
        include_dirs=("/opt/torch/include", "/opt/a dir"),
        cflags=("O3", "DNDEBUG", "std=c++20", "fopenmp"),
        ldflags=(),
        libraries_dirs=("/opt/torch/lib",),
        libraries=("torch", "torch_cpu"),
        passthrough=("-mavx512f", "-mfma"),
    )
    assert unpacked_sources.link_flags.cflags[-1] == "shared"


def test_weights_above_two_gigabytes_lie_apart(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    (folder / "c1.wrapper_serialized_weights.bin").write_bytes(b"w")
    unpacked_sources = sources.read(folder, wrapper_opt="O1")
    path = folder / "c1.wrapper_serialized_weights.bin"
    assert unpacked_sources.mapped_weights == FilePart(path, 0, 1)
    assert path not in unpacked_sources.shipped


@pytest.mark.parametrize(
    ("after_wrapper", "kernels", "is_code"),
    [
        (KERNELS + COMMANDS, f"{KERNELS}\n", True),
        (COMMANDS, "\n", False),
        (
            f"{COMMANDS}// Triton kernels are embedded as comments\n{COMMANDS}",
            "\n// Triton kernels are embedded as comments\n\n",
            False,
        ),
    ],
)
def test_kernels_begin_where_the_model_ends(after_wrapper: str, kernels: str, is_code: bool) -> None:
    assert sources.split_kernels(WRAPPER + after_wrapper) == (WRAPPER, kernels)
    assert sources.has_code(kernels) is is_code


def test_an_unknown_wrapper_is_refused() -> None:
    with pytest.raises(ToolchainError, match="another form of C\\+\\+"):
        sources.split_kernels("int main() {}\n")


def test_missing_files_are_refused(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    (folder / "c1.wrapper_linker_flags.json").unlink()
    with pytest.raises(ToolchainError, match=r"has 0 files \*_linker_flags\.json instead of one"):
        sources.read(folder, wrapper_opt="O1")


@pytest.mark.parametrize("name", ["c1.wrapper_compile_flags.json", "c1.wrapper_metadata.json"])
def test_wrong_types_are_damage(tmp_path: Path, name: str) -> None:
    folder = unpacked(tmp_path)

    def read(data: object) -> sources.Sources:
        (folder / name).write_text(json.dumps(data))
        return sources.read(folder, wrapper_opt="O1")

    assert_refused(read, json.loads((folder / name).read_text()), ArtifactError, f"{name} is damaged")
    (folder / name).write_text("[" * 200_000)
    with pytest.raises(ArtifactError, match="is damaged"):
        sources.read(folder, wrapper_opt="O1")


GOLDEN = paths.GOLDEN / "recorded_commands"
TORCH = Path("/here/torch")


@pytest.mark.parametrize("name", ["torch_2.13_cpu", "torch_2.11_cuda"])
def test_commands_of_real_packages(
    golden: Callable[[Path, str], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(compiler, "toolkit_directories", lambda: ())
    commands = sources.parse_commands((GOLDEN / f"{name}.cpp.txt").read_text(), TORCH)
    assert commands is not None
    text = json.dumps(asdict(commands), indent=1).replace(sysconfig.get_path("include"), "PYTHON_INCLUDE")
    golden(GOLDEN / f"{name}.json", text + "\n")


def test_a_wrapper_without_commands() -> None:
    assert sources.parse_commands("int x;\n", TORCH) is None
    assert sources.parse_commands("\n// Compile cmd\n// g++ x.cpp -c -o x.o\n", TORCH) is None


@pytest.mark.parametrize("command", ["", "g++ 'x.cpp"])
def test_commands_that_cannot_be_read(command: str) -> None:
    assert sources.parse_commands(f"\n// Compile cmd\n// {command}\n// Link cmd\n// g++ x.o\n", TORCH) is None


def test_compiler_specific_flags_are_left_out() -> None:
    words = "-O1 -Wall -Werror=ignored-optimization-argument -flto=thin -Xclang -fno-validate-pch -fopenmp"
    commands = sources.parse_commands(
        f"\n// Compile cmd\n// clang++ x.cpp {words}\n// Link cmd\n// clang++ x.o\n", TORCH
    )
    assert commands is not None
    assert commands.compile.cflags == ("O3", "Wall", "fopenmp")
    flags = replace(commands.compile, cflags=("O3", "Werror=ignored-optimization-argument"))
    assert sources.relocate_flags(flags, TORCH).cflags == ("O3",)


def test_directories_of_flags_become_those_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    flags = Flags(
        compiler="g++",
        definitions=("A",),
        include_dirs=("/theirs/include/python3.9", "/theirs/torch/include", "/theirs/torch/include/torch/csrc/api"),
        cflags=("O3",),
        ldflags=(),
        libraries_dirs=("/theirs/torch/lib", str(tmp_path / "mine"), "/theirs/lib"),
        libraries=("torch",),
        passthrough=("-mfma",),
    )
    relocated = sources.relocate_flags(flags, TORCH)
    assert relocated.include_dirs == (
        sysconfig.get_path("include"),
        "/here/torch/include",
        "/here/torch/include/torch/csrc/api",
    )
    assert relocated.libraries_dirs == ("/here/torch/lib", str(tmp_path / "mine"))
    assert (relocated.definitions, relocated.cflags, relocated.passthrough) == (("A",), ("O3",), ("-mfma",))


def test_cuda_directories_are_those_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "include").mkdir()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    text = (GOLDEN / "torch_2.11_cuda.cpp.txt").read_text().replace("/home/u/cuda", "/theirs/cuda")
    commands = sources.parse_commands(text, TORCH)
    assert commands is not None
    assert str(tmp_path / "include") in commands.compile.include_dirs
    assert "/theirs/cuda/include" not in commands.left_out
