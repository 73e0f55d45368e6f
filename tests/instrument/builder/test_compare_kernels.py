"""KernelSet of a fresh build and of a package, as data."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError, InternalError
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.instrument.builder import compare_kernels
from aoti_debug.instrument.builder.compare_kernels import (
    HELPERS,
    KernelComparison,
    KernelDifference,
    KernelSet,
    complete_kernels,
    normalised_source,
    triton_helpers,
)
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Answer, TritonConfig
from aoti_debug.instrument.frontend.sources import Flags
from aoti_debug.package.manifest import ConfigOrigin, Kernel
from aoti_debug.package.pt2 import archive, kernel_hashes
from tests import archives, factories

CONFIG = TritonConfig((("XBLOCK", "128"), ("num_warps", "4"), ("num_stages", "1")), global_scratch=256)


def triton_kernel(name: str, source: str = "", cubin: str = "") -> Kernel:
    return Kernel(name, "triton", source, "", id=0, cubin=cubin)


def test_a_kernel_gets_its_configuration_and_the_hash_of_its_binary(tmp_path: Path) -> None:
    (tmp_path / "a.cubin").write_bytes(b"code")
    kernel, other = complete_kernels(
        [triton_kernel("triton_a", cubin="a.cubin"), triton_kernel("b", cubin="gone.cubin")],
        {"triton_a": CONFIG},
        tmp_path,
    )
    assert (kernel.config, kernel.global_scratch, kernel.profile_scratch) == (CONFIG.values, 256, 0)
    assert kernel.cubin_sha256 == hashlib.sha256(b"code").hexdigest()
    assert kernel.code_sha256 == kernel.cubin_sha256
    assert (other.config, other.cubin_sha256, other.code_sha256) == ((), "", "")


def test_a_cpp_kernel_stays_as_it_is(tmp_path: Path) -> None:
    kernel = Kernel("cpp_fused_0", "cpp", "void f();", "")
    assert complete_kernels([kernel], {"cpp_fused_0": CONFIG}, tmp_path) == (kernel,)


def test_a_kernel_without_a_record_gets_a_configuration_that_fits(tmp_path: Path) -> None:
    source = """@triton_heuristics.pointwise(
    size_hints={'x': 64}, inductor_meta={'grid_type': 'Grid1D'},
    triton_meta={'signature': {'xnumel': 'i32', 'XBLOCK': 'constexpr'}, 'constants': {}})
@triton.jit
def k(xnumel, XBLOCK: tl.constexpr):
    pass
"""
    grid = (("grid_0", "((xnumel + (32 - 1)) / (32))"),)
    bare = replace(triton_kernel("k", source), num_warps=4, grid=grid)
    (kernel,) = complete_kernels([bare], {}, tmp_path)
    assert dict(kernel.config) == {"XBLOCK": "32", "num_stages": "1", "num_warps": "4"}
    assert (kernel.origin("XBLOCK"), kernel.origin("num_stages")) == (ConfigOrigin.DERIVED, ConfigOrigin.CHOSEN)
    (recorded,) = complete_kernels([bare], {"k": CONFIG}, tmp_path)
    assert (recorded.config, recorded.inferred, recorded.other_configs) == (CONFIG.values, (), ())
    assert recorded.origin("XBLOCK") is ConfigOrigin.RECORDED


def test_helpers_come_from_the_torch_that_compiled_the_kernels(tmp_path: Path) -> None:
    (tmp_path / HELPERS).parent.mkdir(parents=True)
    (tmp_path / HELPERS).write_text("@triton.jit\ndef prod(x):\n    return x\n\n\ndef other():\n    pass\n")
    kernel = triton_kernel("k", "def k(x):\n    return triton_helpers.prod(x)\n")
    assert triton_helpers([kernel], tmp_path) == "@triton.jit\ndef prod(x):\n    return x\n"
    assert triton_helpers([Kernel("cpp", "cpp", "int triton_helpers;", "")], tmp_path) == ""


def test_configurations_cross_the_process_border(tmp_path: Path) -> None:
    answer = Answer("2.13.0", ("aten.addmm.default",), {}, "O1", "", {"lower": 1.5}, {"triton_a": CONFIG})
    messages.write_answer(tmp_path, answer)
    assert messages.read_answer(tmp_path) == answer


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


def test_kernels_of_unknown_binary_and_source_are_not_taken_for_identical() -> None:
    unknown = replace(triton("triton_poi_fused_0", ""), source="")
    assert compare([unknown], [unknown]).different == (
        KernelDifference("triton_poi_fused_0", "neither its binary nor its source can be compared"),
    )
    ours, theirs = (replace(unknown, code_sha256=code) for code in ("1", "2"))
    assert compare([ours], [theirs]).different == (KernelDifference("triton_poi_fused_0", "another kernel binary"),)
    assert compare([ours], [ours]).different == ()


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


def test_text_of_a_kernel_that_the_user_wrote_has_its_constants_and_not_the_machine() -> None:
    source = (
        "@triton_heuristics.user_autotune(\n    configs=[],\n    inductor_meta={'backend_hash': 'AB'},\n"
        "    triton_meta={'signature': {'x': '*fp32'}, 'device': DeviceProperties(type='cuda', index=0, cc=90), "
        "'constants': {'BLOCK': 64}},\n)\n@triton.jit\ndef add(x, BLOCK: tl.constexpr):\n    pass\n"
    )
    kernel = replace(triton("add_0", "1"), source=source)
    elsewhere = replace(kernel, source=source.replace("'AB'", "'CD'").replace("index=0, cc=90", "index=1, cc=100"))
    assert normalised_source(kernel) == normalised_source(elsewhere)
    other = replace(kernel, source=source.replace("'BLOCK': 64", "'BLOCK': 128"))
    assert normalised_source(kernel) != normalised_source(other)


@pytest.mark.parametrize("sources", [{}, {f"{archives.MODEL}c1.wrapper.cpp": b""}])
def test_a_package_without_source_cannot_be_compared_with(tmp_path: Path, sources: dict[str, bytes]) -> None:
    package = archive.inspect(archives.write(tmp_path / "theirs.pt2", archives.PACKAGE | sources))
    (tmp_path / "work").mkdir()
    with pytest.raises(ArtifactError, match=r"theirs\.pt2 holds no source of its wrapper"):
        compare_kernels.read_kernels(package, "model", tmp_path / "work", Torch("2.13.0", tmp_path, ""))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return archives.write(tmp_path / "out.pt2", {f"{archives.MODEL}k.cubin": b"code", **archives.FRAME})


def test_a_package_with_the_original_kernels_is_right(output: Path) -> None:
    originals = kernel_hashes.hash_package(archive.inspect(output), "model")
    assert originals.keys() == {"k.cubin"}
    compare_kernels.verify_originals(archive.inspect(output), originals, "model")


@pytest.mark.parametrize("originals", [{"k.cubin": "another"}, {"k.cubin": "another", "cpp_fused_0": "gone"}])
def test_a_package_with_other_kernels_is_a_bug(output: Path, originals: dict[str, str]) -> None:
    with pytest.raises(InternalError, match=", ".join(sorted(originals))):
        compare_kernels.verify_originals(archive.inspect(output), originals, "model")


def test_kernels_of_an_exported_program_are_not_compared(output: Path) -> None:
    compare_kernels.verify_originals(archive.inspect(output), {}, "model")
