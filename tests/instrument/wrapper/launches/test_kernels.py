"""Functions of Inductor's module of Triton helpers, cut out of its text."""

from __future__ import annotations

import hashlib

import pytest

from aoti_debug.instrument.wrapper.launches.kernels import (
    closure,
    cpp_kernels,
    free_names,
    functions,
    helper_definitions,
    helpers_of,
    shared_cubins,
    triton_kernels,
)
from tests.instrument.wrapper import texts

MODULE = """import math as pymath
from .triton_compat import libdevice, tl, triton

_LOG_2_E: tl.constexpr = tl.constexpr(pymath.log2(pymath.e))
unused = 1


@triton.jit
def is_floating(x):
    return promote_to_tensor(x).dtype.is_floating()


@triton.jit
def promote_to_tensor(x):
    # Addition promotes to tensor for us
    return x + tl.zeros((1,), tl.int1)


@triton.jit
def exp(x):
    return libdevice.exp2(x * _LOG_2_E)


@triton.jit
def fp8(x):
    exp = (x >> 3) & 0xF
    return exp
"""


def names(*wanted: str) -> list[str]:
    return [d.name for d in closure(helper_definitions(MODULE), wanted)]


def test_what_a_function_calls_comes_along_in_the_order_of_the_text() -> None:
    assert names("is_floating") == ["is_floating", "promote_to_tensor"]
    assert names("exp") == ["_LOG_2_E", "exp"]


def test_a_variable_of_a_helpers_name_is_not_the_helper() -> None:
    assert names("fp8") == ["fp8"]


def test_unknown_names_are_left_out() -> None:
    assert names("nothing", "promote_to_tensor") == ["promote_to_tensor"]


def test_a_definition_keeps_its_lines() -> None:
    text = helper_definitions(MODULE)["promote_to_tensor"].text
    assert text.startswith("@triton.jit\ndef promote_to_tensor(x):\n    # Addition")
    assert text.endswith("tl.int1)\n")


def test_only_what_kernels_use_is_kept() -> None:
    kernel = "def k(x):\n    y = triton_helpers.is_floating(x)\n    return y\n"
    text = helpers_of([kernel, "def other(x):\n    return x\n"], MODULE)
    assert list(helper_definitions(text)) == ["is_floating", "promote_to_tensor"]
    assert helpers_of(["x = 1\n"], MODULE) == ""


def test_a_kept_text_can_be_cut_again() -> None:
    once = helpers_of(["def k(x):\n    return triton_helpers.exp(triton_helpers.is_floating(x))\n"], MODULE)
    assert list(helper_definitions(once)) == ["_LOG_2_E", "is_floating", "promote_to_tensor", "exp"]
    again = ["def k(x):\n    return triton_helpers.exp(x)\n"]
    assert helpers_of(again, once) == helpers_of(again, MODULE)


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("def f(a, *b, c=d, **e):\n    g = a\n    return g + h\n", {"d", "h"}),
        ("x = y\n", {"y"}),
        ("def f():\n    for i in tl.static_range(n):\n        pass\n", {"tl", "n"}),
    ],
)
def test_free_names(text: str, free: set[str]) -> None:
    import ast

    assert free_names(ast.parse(text).body[0]) == free


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
