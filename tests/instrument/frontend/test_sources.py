from __future__ import annotations

import json
from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError, ToolchainError
from aoti_debug.instrument.frontend import sources
from aoti_debug.instrument.frontend.sources import Flags
from aoti_debug.package.pt2.extract import FilePart
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
