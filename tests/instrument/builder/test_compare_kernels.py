"""KernelSet of a fresh build and of a package, as data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError, InternalError
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.instrument.builder import compare_kernels
from aoti_debug.instrument.builder.compare_kernels import KernelComparison, KernelDifference, KernelSet
from aoti_debug.instrument.builder.kernel_details import normalised_source
from aoti_debug.instrument.frontend.sources import Flags
from aoti_debug.package.manifest import Kernel
from aoti_debug.package.pt2 import archive, kernel_hashes
from tests import archives, factories

PACKAGE = Path("theirs/c.pt2")
FLAGS = frozenset({"-O3", "-march=native"})


def cpp(name: str, body: str = "*x = 1;", include: str = "/tmp/a/cpp_prefix.h") -> Kernel:
    source = f'#include "{include}"\nextern "C"  void  {name}(float* x)\n{{\n    // {name}\n    {body}\n}}\n'
    return Kernel(name, "cpp", source, "")


def triton(name: str, cubin: str) -> Kernel:
    return replace(factories.triton_kernel(name), code_sha256=cubin)


def compare(ours: list[Kernel], theirs: list[Kernel], flags: frozenset[str] = FLAGS) -> KernelComparison:
    return compare_kernels.compare(PACKAGE, KernelSet(tuple(ours), FLAGS), KernelSet(tuple(theirs), flags))


def test_equal_kernels_under_other_names() -> None:
    ours = [cpp("cpp_fused_a_0"), triton("triton_poi_fused_0", "1")]
    theirs = [triton("triton_poi_fused_x_7", "1"), cpp("cpp_fused_b_3", include="torch/cpp_prefix.h")]
    comparison = compare(ours, theirs)
    assert comparison == KernelComparison(PACKAGE, 2, (), ())
    assert str(comparison) == "2 of 2 kernels identical to those of c.pt2"


def test_every_difference_is_named_with_its_reason() -> None:
    ours = [
        cpp("cpp_fused_a_0", "*x = 2;"),
        cpp("cpp_fused_new_1", "*x = 3;"),
        triton("triton_poi_fused_0", "1"),
        triton("triton_poi_fused_1", "2"),
    ]
    theirs = [
        cpp("cpp_fused_a_0"),
        cpp("cpp_fused_gone_1", "*x = 4;"),
        triton("triton_poi_fused_0", "other"),
        triton("triton_poi_fused_1", "2"),
    ]
    assert compare(ours, theirs) == KernelComparison(
        PACKAGE,
        4,
        (
            KernelDifference("cpp_fused_a_0", "its source differs"),
            KernelDifference("cpp_fused_new_1", "the package has no such kernel"),
            KernelDifference("triton_poi_fused_0", "equal source, another kernel binary"),
        ),
        ("cpp_fused_gone_1",),
    )


def test_flags_count_for_cpp_kernels() -> None:
    comparison = compare([cpp("cpp_fused_a_0")], [cpp("cpp_fused_a_0")], FLAGS - {"-O3"} | {"-O1"})
    assert comparison.different == (KernelDifference("cpp_fused_a_0", "equal source, other compiler flags: +-O3 --O1"),)
    assert compare([triton("t", "1")], [triton("t", "1")], frozenset()).different == ()


def test_flags_without_those_that_change_no_kernel() -> None:
    flags = Flags(
        compiler="g++",
        definitions=(" C10_X", "TORCH_INDUCTOR_PRECOMPILE_HEADERS", "USE_MMAP_SELF", "NDEBUG"),
        include_dirs=("/a",),
        cflags=("O3", "DNDEBUG", "fPIC", "Wall", "std=c++20", "march=native"),
        ldflags=(),
        libraries_dirs=(),
        libraries=(),
        passthrough=("-mavx2",),
    )
    assert compare_kernels.relevant_flags(flags) == {"-DC10_X", "-O3", "-std=c++20", "-march=native", "-mavx2"}


def test_text_is_that_of_the_code() -> None:
    assert normalised_source(cpp("cpp_fused_a_0")) == normalised_source(
        cpp("cpp_fused_zzz_9", include="x/cpp_prefix.h")
    )
    assert normalised_source(cpp("cpp_fused_a_0")) != normalised_source(cpp("cpp_fused_a_0", "*x = 2;"))
    decorated = replace(
        triton("triton_poi_fused_0", "1"),
        source="@triton_heuristics.pointwise(inductor_meta={'backend_hash': 'AB'})\n@triton.jit\n"
        "def triton_poi_fused_0(in_ptr0, XBLOCK : tl.constexpr):\n    x = tl.load(in_ptr0)  # from memory\n",
    )
    other = replace(
        triton("triton_poi_fused_5", "1"),
        source="@triton_heuristics.pointwise(inductor_meta={'backend_hash': 'CD'})\n@triton.jit\n"
        "def triton_poi_fused_5(in_ptr0, XBLOCK : tl.constexpr):\n    x = tl.load(in_ptr0)\n",
    )
    assert (
        normalised_source(decorated)
        == normalised_source(other)
        == "def kernel(in_ptr0, XBLOCK : tl.constexpr): x = tl.load(in_ptr0)"
    )


@pytest.mark.parametrize("sources", [{}, {f"{archives.MODEL}c1.wrapper.cpp": b""}])
def test_a_package_without_source_cannot_be_compared_with(tmp_path: Path, sources: dict[str, bytes]) -> None:
    package = archive.inspect(archives.write(tmp_path / "theirs.pt2", archives.PACKAGE | sources))
    (tmp_path / "work").mkdir()
    with pytest.raises(ArtifactError, match=r"theirs\.pt2 holds no source of its wrapper"):
        compare_kernels.read_kernels(package, "model", tmp_path / "work", Torch("2.13.0", tmp_path, ""))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return archives.write(tmp_path / "out.pt2", {f"{archives.MODEL}k.cubin": b"code", **archives.FRAME})


def test_a_package_with_the_original_kernels_stays(output: Path) -> None:
    originals = kernel_hashes.hash_package(archive.inspect(output), "model")
    assert originals.keys() == {"k.cubin"}
    compare_kernels.verify_originals(archive.inspect(output), originals, "model")
    assert output.exists()


@pytest.mark.parametrize("originals", [{"k.cubin": "another"}, {"k.cubin": "another", "cpp_fused_0": "gone"}])
def test_a_package_with_other_kernels_is_a_bug_and_is_removed(output: Path, originals: dict[str, str]) -> None:
    with pytest.raises(InternalError, match=", ".join(sorted(originals))):
        compare_kernels.verify_originals(archive.inspect(output), originals, "model")
    assert not output.exists()


def test_kernels_of_an_exported_program_are_not_compared(output: Path) -> None:
    compare_kernels.verify_originals(archive.inspect(output), {}, "model")
    assert output.exists()
