"""What a build adds to its Triton kernels."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from aoti_debug.instrument.builder.kernel_details import HELPERS, complete_kernels, triton_helpers
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Answer, TritonConfig
from aoti_debug.package.manifest import ConfigOrigin, Kernel

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
