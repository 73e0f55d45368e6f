"""The text of kernels with checked pointers; nothing is compiled."""

from __future__ import annotations

import pytest

from aoti_debug.repro.templates.checked_source import NotCheckableError, checked_source, parameters_of

KERNEL = """#include <torch/csrc/inductor/cpp_prefix.h>
template <typename T> inline T helper(const float* a) { return a[0]; }
extern "C"  void  cpp_fused_0(const int64_t* in_ptr0,
                       const at::Half* __restrict__ in_ptr1,
                       float* out_ptr0,
                       const int64_t ks0)
{
    BODY
}
"""


def body(text: str) -> str:
    source = KERNEL.replace("BODY", text)
    made = checked_source(source, "cpp_fused_0", "HEADER")
    head, _, own = made.partition('\n#line 1 "SOURCE"\n')
    assert head == '#include <torch/csrc/inductor/cpp_prefix.h>\n#line 1 "checked_pointer.h"\nHEADER'
    assert own.count("\n") == source.count("\n")  # lines stay where they were
    return own.splitlines()[7].strip()


def test_parameters_become_checked_pointers() -> None:
    made = checked_source(KERNEL, "cpp_fused_0", "")
    assert "cpp_fused_0(::replay::Pointer<const int64_t> in_ptr0,\n::replay::Pointer<const at::Half> in_ptr1," in made
    assert "helper(const float* a)" in made
    assert "const int64_t ks0)\n{" in made
    assert parameters_of(KERNEL, "cpp_fused_0") == ["in_ptr0", "in_ptr1", "out_ptr0", "ks0"]


def test_other_headers_keep_their_own_checks() -> None:
    """They come before the pointers, which give the checks of a kernel another meaning."""
    source = KERNEL.replace("template", "  #include <ATen/Parallel.h>\ntemplate", 1)
    made = checked_source(source, "cpp_fused_0", "HEADER")
    head, _, own = made.partition("HEADER")
    assert head.splitlines()[:2] == ["#include <torch/csrc/inductor/cpp_prefix.h>", "#include <ATen/Parallel.h>"]
    assert own.count("\n") == source.count("\n") + 2
    assert "include" not in own


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("auto a = in_ptr0[x0];", "auto a = in_ptr0[x0];"),
        (
            "auto a = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0), 16);",
            "auto a = ::replay::loadu<at::vec::Vectorized<float>>(in_ptr0 + static_cast<int64_t>(x0), 16);",
        ),
        (
            "return at::vec::VectorizedN<int64_t,2>::loadu(tmpbuf.data(), 8);",
            "return ::replay::loadu<at::vec::VectorizedN<int64_t,2>>(tmpbuf.data(), 8);",
        ),
        (
            "auto a = floor_divide_integral(tmp0, tmp1) + remainder_integral(tmp0, (tmp1 + 2));",
            "auto a = floor_divide_integral(tmp0, ::replay::divisor_of(tmp0, tmp1)) + "
            "remainder_integral(tmp0, ::replay::divisor((tmp1 + 2)));",
        ),
        ("auto a = mod(tmp0, tmp1);", "auto a = mod(tmp0, ::replay::divisor(tmp1));"),
        ("auto a = std::fmod(tmp0, tmp1) + my_mod(a, b);", "auto a = std::fmod(tmp0, tmp1) + my_mod(a, b);"),
        ("auto a = tmp0 / tmp1;", "auto a = tmp0 / ::replay::divisor_of(tmp0, tmp1);"),
        (
            "auto a = tmp0 / decltype(tmp1)::set(decltype(tmp1)(1), tmp1, 8);",
            "auto a = tmp0 / ::replay::divisor_of(tmp0, decltype(tmp1)::set(decltype(tmp1)(1), tmp1, 8));",
        ),
        ("auto a = x0 / 8L + tmp0 / 2.0;", "auto a = x0 / 8L + tmp0 / 2.0;"),
        ("auto a = tmp0 / tmp1.sum();", "auto a = tmp0 / tmp1.sum();"),
        ("tmp7.store(out_ptr0 + x, 8);", "::replay::store(tmp7, out_ptr0 + x, 8);"),
        ("(a + b).store(out_ptr0);", "::replay::store((a + b), out_ptr0);"),
        (
            "at::vec::convert<float>(tmp1).store(out_ptr0, at::vec::Vectorized<int>::loadu(p, 1)[0]);",
            "::replay::store(at::vec::convert<float>(tmp1), out_ptr0, "
            "::replay::loadu<at::vec::Vectorized<int>>(p, 1)[0]);",
        ),
        (
            "auto m = at::vec::VecMask<float,1>::from(in_ptr1 + x, 16);",
            "auto m = ::replay::mask_from<at::vec::VecMask<float,1>>(in_ptr1 + x, 16);",
        ),
        (
            "auto t = tmp1.template cast<float,1>().template loadu<float,1>(in_ptr1 + x);",
            "auto t = ::replay::masked_loadu<float,1>(tmp1.template cast<float,1>(), in_ptr1 + x);",
        ),
        ("at::vec::transpose_mxn<float,8,8,false>(a, 1, b, 1);", "transpose_mxn<float,8,8,false>(a, 1, b, 1);"),
        ("auto t = decltype(a)::loadu(p);", "auto t = ::replay::loadu<decltype(a)>(p);"),
        ("std::atomic<int> n; n.store_it(1); restore(2);", "std::atomic<int> n; n.store_it(1); restore(2);"),
    ],
)
def test_vectors_are_loaded_and_stored_by_functions_that_see_the_pointer(text: str, made: str) -> None:
    assert body(text) == made


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (KERNEL.replace("cpp_fused_0", "other"), "defines no function cpp_fused_0"),
        (KERNEL.replace("const at::Half*", "const at::Half**"), "is no plain pointer"),
        ('extern "C" void cpp_fused_0(float* a);\n' + KERNEL, "declares cpp_fused_0 before it defines it"),
        (KERNEL.replace("BODY", "tmp7].store(1);"), "its brackets are not opened"),
    ],
)
def test_sources_of_no_known_form(source: str, why: str) -> None:
    with pytest.raises(NotCheckableError, match=why):
        checked_source(source, "cpp_fused_0", "")
