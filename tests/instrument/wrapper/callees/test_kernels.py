from __future__ import annotations

import hashlib

from aoti_debug.instrument.wrapper.callees.kernels import cpp_kernels, functions, shared_cubins, triton_kernels
from tests.instrument.wrapper import texts

GEMM = """
#include <torch/csrc/inductor/cpp_prefix.h>
#include <c10/util/Unroll.h>
template <bool accum> inline void cpp_fused_addmm_0_micro_gemm(const float* A) { }
extern "C"
void cpp_fused_addmm_0(const float* X, float* Y)
{
    cpp_fused_addmm_0_micro_gemm<false>(X);
}
"""
RELU = """
#include "/tmp/cache/cpp_prefix.h"
extern "C"  void  cpp_fused_relu_1(const float* in_ptr0,
                       float* out_ptr0)
{
    // extern "C" void not_a_kernel(int x) {
}
"""


def test_a_cpp_kernel_comes_with_all_that_it_needs() -> None:
    gemm, relu = cpp_kernels(GEMM + RELU)
    assert (gemm.name, gemm.source) == ("cpp_fused_addmm_0", GEMM.strip() + "\n")
    assert (relu.name, relu.source) == ("cpp_fused_relu_1", RELU.strip() + "\n")
    assert relu.sha256 == hashlib.sha256(relu.source.encode()).hexdigest()
    assert (relu.language, relu.id) == ("cpp", -1)


def test_includes_in_front_of_the_prefix_belong_to_the_kernel_behind_them() -> None:
    profiled = "#include <torch/csrc/inductor/aoti_runtime/utils.h>\n" + RELU.lstrip()
    first, second = cpp_kernels(f"\n{profiled}{profiled.replace('relu_1', 'relu_2')}")
    assert (first.name, first.source) == ("cpp_fused_relu_1", profiled)
    assert (second.name, second.source) == ("cpp_fused_relu_2", profiled.replace("relu_1", "relu_2"))


def test_no_kernels() -> None:
    assert cpp_kernels("\n\n") == ()


def test_triton_kernels_are_numbered_and_named_as_sites_name_them() -> None:
    kernels = triton_kernels(functions(texts.text("cuda_multi_kernel")).values())
    assert [(k.id, k.name) for k in kernels] == [(0, "triton_red_fused_addmm_gelu_native_layer_norm_3")]
    kernel = triton_kernels(functions(texts.text("cuda")).values())[4]
    assert (kernel.name, kernel.cubin, kernel.mangled) == ("add_kernel_0", "add_kernel.cubin", "add_kernel")
    assert (kernel.num_warps, kernel.shared_bytes) == (4, 0)


def test_a_cubin_that_two_specialisations_share_is_found() -> None:
    text = texts.text("cuda_dynamic")
    start = text.index("template <typename x_type_")
    end = text.index("\nnamespace torch::aot_inductor {\n\nvoid")
    again = (
        text[start:end]
        .replace("call_add_kernel_0", "call_add_kernel_1")
        .replace("kernels_.add_kernel_0", "kernels_.add_kernel_1")
    )
    assert shared_cubins(text) == ()
    assert shared_cubins(text[:end] + again + text[end:]) == ("/tmp/kernels/add_kernel.cubin",)
