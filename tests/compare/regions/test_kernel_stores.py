from __future__ import annotations

import pytest

from aoti_debug.compare.regions.kernel_stores import begins_with_a_store, stores_to
from aoti_debug.package.manifest import Kernel

HEAD = 'extern "C" void cpp_fused_add_0(float* in_out_ptr0,\n const float* in_ptr0)\n{\n'


@pytest.mark.parametrize(
    ("language", "line", "stores"),
    [
        ("triton", "tl.store(in_out_ptr0 + (x0), tmp1, xmask)", True),
        ("triton", "tl.atomic_add(in_out_ptr0 + (x0), tmp1, xmask)", True),
        ("triton", "tmp0 = tl.load(in_out_ptr0 + (x0), xmask)", False),
        ("triton", "tl.store(in_out_ptr01 + (x0), tmp1, xmask)", False),
        ("cpp", "in_out_ptr0[static_cast<int64_t>(x0)] = tmp5;", True),
        ("cpp", "in_out_ptr0[index[static_cast<int64_t>(x0)]] += tmp5;", True),
        ("cpp", "tmp5.store(in_out_ptr0 + static_cast<int64_t>(x0), 8);", True),
        ("cpp", "atomic_add(&in_out_ptr0[static_cast<int64_t>(x0)], tmp5);", True),
        ("cpp", "transpose_mxn<float,8,8>(tmp, 8, in_out_ptr0 + static_cast<int64_t>(x0), 8);", True),
        ("cpp", "*(in_out_ptr0 + static_cast<int64_t>(x0)) = tmp5;", True),
        ("cpp", "micro_gemm<false>(&(X[0]), &(in_out_ptr0[static_cast<int64_t>(x0)]), 8);", True),
        (
            "cpp",
            "transpose_mxn<float,static_cast<int64_t>(8),8>(in_out_ptr0 + static_cast<int64_t>(x0), 8, tmp, 8);",
            False,
        ),
        ("cpp", "auto tmp0 = tmp1 * (in_out_ptr0[static_cast<int64_t>(x0)] + tmp2);", False),
        ("cpp", "auto tmp0 = in_out_ptr0[static_cast<int64_t>(x0)] <= tmp1;", False),
        ("cpp", "auto tmp0 = in_out_ptr0[static_cast<int64_t>(x0)];", False),
        ("cpp", "bool tmp0 = in_out_ptr0[static_cast<int64_t>(x0)] == tmp1;", False),
        ("cpp", "auto tmp0 = at::vec::Vectorized<float>::loadu(in_out_ptr0 + static_cast<int64_t>(x0), 8);", False),
        ("cpp", "auto out_ptr1 = in_out_ptr0; tmp5.store(out_ptr1 + static_cast<int64_t>(x0));", False),
        ("cpp", "in_out_ptr01[static_cast<int64_t>(x0)] = tmp5;", False),
    ],
)
def test_stores(language: str, line: str, stores: bool) -> None:
    head = HEAD if language == "cpp" else "def triton_poi_fused_add_0(in_out_ptr0, in_ptr0, xnumel, XBLOCK):\n"
    assert stores_to(Kernel("k", language, f"{head}    {line}\n", "0" * 64), "in_out_ptr0") == stores


@pytest.mark.parametrize(
    ("language", "line", "expected"),
    [
        ("cpp", "auto out_ptr1 = in_out_ptr0;", True),
        ("cpp", "auto in_ptr0 = in_out_ptr0;", False),
        ("cpp", "auto out_ptr1 = in_out_ptr01;", False),
        ("cpp", "auto tmp0 = in_out_ptr0[static_cast<int64_t>(x0)];", False),
        ("triton", "auto out_ptr1 = in_out_ptr0;", False),
    ],
)
def test_a_partial_result_that_is_stored_first(language: str, line: str, expected: bool) -> None:
    kernel = Kernel("cpp_fused_add_0", language, f"{HEAD}{line}\n}}\n", "")
    assert begins_with_a_store(kernel, "in_out_ptr0") is expected
