"""Kernels as Inductor writes them (torch 2.11 for Triton, 2.13 for C++), cut to what tests need."""

from __future__ import annotations

from aoti_debug.package.manifest import Kernel


def triton(name: str, parameters: str, body: str) -> Kernel:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    head = "import triton\nimport triton.language as tl\n\n@triton.jit\n"
    return Kernel(
        name, "triton", f"{head}def {name}({parameters}, xnumel, XBLOCK : tl.constexpr):\n{lines}\n", "0" * 64
    )


def cpp(name: str, parameters: str, body: str) -> Kernel:
    source = f'#include <torch/csrc/inductor/cpp_prefix.h>\nextern "C"  void  {name}({parameters})\n{{\n{body}\n}}\n'
    return Kernel(name, "cpp", source, "0" * 64)


POINTWISE = """
xoffset = tl.program_id(0) * XBLOCK
xindex = xoffset + tl.arange(0, XBLOCK)[:]
xmask = xindex < xnumel
x0 = xindex
"""

TRITON_DIV = triton(
    "triton_poi_fused_div_0",
    "in_ptr0, in_ptr1, out_ptr0",
    POINTWISE
    + """
tmp0 = tl.load(in_ptr0 + (x0), xmask)
tmp1 = tl.load(in_ptr1 + (x0), xmask)
tmp2 = (tmp0 / tmp1)
tl.store(out_ptr0 + (x0), tmp2, xmask)
""",
)

TRITON_MASKED_FILL = triton(
    "triton_poi_fused_masked_fill_0",
    "in_ptr0, in_ptr1, out_ptr0, out_ptr1",
    POINTWISE
    + """
tmp0 = tl.load(in_ptr0 + (x0), xmask).to(tl.int1)
tmp1 = tl.load(in_ptr1 + (x0), xmask)
tmp2 = tl.full([1], float("-inf"), tl.float32)
tmp3 = tl.where(tmp0, tmp2, tmp1)
tmp4 = tl_math.log(tmp1)
tl.store(out_ptr0 + (x0), tmp3, xmask)
tl.store(out_ptr1 + (x0), tmp4, xmask)
""",
)

TRITON_PADDED = triton(
    "triton_poi_fused_constant_pad_nd_0",
    "in_ptr0, out_ptr0",
    POINTWISE
    + """
tmp0 = (-1) + x0
tmp1 = tl.full([1], 0, tl.int64)
tmp2 = tmp0 >= tmp1
tmp3 = tl.load(in_ptr0 + ((-1) + x0), tmp2 & xmask, other=float("-inf"))
tl.store(out_ptr0 + (x0), tmp3, xmask)
""",
)

TRITON_SOFTMAX = triton(
    "triton_per_fused__softmax_0",
    "in_ptr0, out_ptr2, r0_numel",
    """
R0_BLOCK: tl.constexpr = 128
xoffset = tl.program_id(0) * XBLOCK
xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
xmask = xindex < xnumel
r0_index = tl.arange(0, R0_BLOCK)[None, :]
r0_1 = r0_index
x0 = xindex
tmp0 = tl.load(in_ptr0 + (r0_1 + 128*x0), xmask, other=0.0)
tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
tmp3 = tl.broadcast_to(tmp1, [XBLOCK, R0_BLOCK])
tmp5 = tl.where(xmask, tmp3, float("-inf"))
tmp6 = triton_helpers.max2(tmp5, 1)[:, None].to(tl.float32)
tmp7 = tmp1 - tmp6
tmp8 = libdevice.exp(tmp7)
tmp9 = tl.broadcast_to(tmp8, [XBLOCK, R0_BLOCK])
tmp11 = tl.where(xmask, tmp9, 0)
tmp12 = tl.sum(tmp11, 1)[:, None].to(tl.float32)
tmp13 = tmp0 - tmp6
tmp14 = libdevice.exp(tmp13)
tmp15 = (tmp14 / tmp12)
tl.store(out_ptr2 + (r0_1 + 128*x0), tmp15, xmask)
""",
)

TRITON_ONLINE_SOFTMAX = triton(
    "triton_red_fused__softmax_0",
    "in_ptr0, out_ptr2, r0_numel, R0_BLOCK : tl.constexpr",
    """
xoffset = tl.program_id(0) * XBLOCK
xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
xmask = xindex < xnumel
r0_base = tl.arange(0, R0_BLOCK)[None, :]
x0 = xindex
_tmp2_max = tl.full([XBLOCK, R0_BLOCK], float('-inf'), tl.float32)
_tmp2_sum = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
    r0_index = r0_offset + r0_base
    r0_mask = r0_index < r0_numel
    r0_1 = r0_index
    tmp0 = tl.load(in_ptr0 + (r0_1 + 6000*x0), r0_mask & xmask, eviction_policy='evict_last', other=0.0)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    _tmp2_max_next, _tmp2_sum_next = triton_helpers.online_softmax_combine(
        _tmp2_max, _tmp2_sum, tmp1, False
    )
    _tmp2_max = tl.where(r0_mask & xmask, _tmp2_max_next, _tmp2_max)
    _tmp2_sum = tl.where(r0_mask & xmask, _tmp2_sum_next, _tmp2_sum)
tmp2, tmp3 = triton_helpers.online_softmax_reduce(
    _tmp2_max, _tmp2_sum, 1, False)
tmp2 = tmp2[:, None]
tmp3 = tmp3[:, None]
for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
    r0_index = r0_offset + r0_base
    r0_mask = r0_index < r0_numel
    r0_1 = r0_index
    tmp4 = tl.load(in_ptr0 + (r0_1 + 6000*x0), r0_mask & xmask, eviction_policy='evict_first', other=0.0)
    tmp5 = tmp4 - tmp2
    tmp6 = libdevice.exp(tmp5)
    tmp7 = (tmp6 / tmp3)
    tl.store(out_ptr2 + (r0_1 + 6000*x0), tmp7, r0_mask & xmask)
""",
)

TRITON_AMAX = triton(
    "triton_per_fused_amax_isnan_0",
    "in_ptr0, out_ptr0, out_ptr1",
    """
xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
xmask = xindex < xnumel
x0 = xindex
r0_1 = tl.arange(0, 128)[None, :]
tmp0 = tl.load(in_ptr0 + (r0_1 + 128*x0), xmask, other=0.0)
tmp1 = tl.broadcast_to(tmp0, [XBLOCK, 128])
_tmp2 = tl.full([XBLOCK, 128], float("-inf"), tl.float32)
tmp3 = triton_helpers.maximum(_tmp2, tmp1)
_tmp2 = tl.where(xmask, tmp3, _tmp2)
tmp2 = triton_helpers.max2(_tmp2, 1)[:, None]
tmp4 = libdevice.isnan(tmp0).to(tl.int1)
tmp5 = tmp4.to(tl.int64)
tmp6 = tl.sum(tmp5, 1)[:, None]
tl.store(out_ptr0 + (x0), tmp2, xmask)
tl.store(out_ptr1 + (x0), tmp6, xmask)
""",
)

TRITON_HALF = triton(
    "triton_poi_fused_mul_0",
    "in_ptr0, out_ptr0",
    POINTWISE
    + """
tmp0 = tl.load(in_ptr0 + (x0), xmask).to(tl.float32)
tmp1 = tmp0 * tmp0
tl.store(out_ptr0 + (x0), tmp1, xmask)
""",
)

TRITON_USER = Kernel(
    "masked_kernel_0",
    "triton",
    """import triton
import triton.language as tl

@triton.jit
def masked_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pointers = x_ptr + offsets
    x = tl.load(pointers, mask=offsets < n)
    best = tl.zeros([BLOCK], dtype=tl.float32) - float("inf")
    best = tl.maximum(best, tl.sqrt(x))
    where_to = out_ptr + offsets
    tl.store(where_to, best, mask=offsets < n)
""",
    "0" * 64,
)

_LOOP = """
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(16L); x0+=static_cast<int64_t>(16L))
    {
        {
            if(C10_LIKELY(x0 >= static_cast<int64_t>(0) && x0 < static_cast<int64_t>(16L)))
            {
%s
            }
        }
    }
"""

CPP_DIV = cpp(
    "cpp_fused_div_0",
    "const float* in_ptr0, const float* in_ptr1, float* out_ptr0",
    _LOOP
    % """
auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(16));
auto tmp1 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x0), static_cast<int64_t>(16));
auto tmp2 = tmp0 / tmp1;
tmp2.store(out_ptr0 + static_cast<int64_t>(x0));
""",
)

CPP_MASKED_FILL = cpp(
    "cpp_fused_masked_fill_0",
    "const bool* in_ptr0, const float* in_ptr1, float* out_ptr0, float* out_ptr1",
    _LOOP
    % """
auto tmp0 = at::vec::VecMask<float,1>::from(in_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(16));
auto tmp1 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x0), static_cast<int64_t>(16));
auto tmp2 = -std::numeric_limits<float>::infinity();
auto tmp3 = at::vec::Vectorized<float>(tmp2);
auto tmp4 = decltype(tmp3)::blendv(tmp1, tmp3, tmp0.template cast<float,1>());
auto tmp5 = tmp1.log();
tmp4.store(out_ptr0 + static_cast<int64_t>(x0));
tmp5.store(out_ptr1 + static_cast<int64_t>(x0));
""",
)

CPP_PADDED = cpp(
    "cpp_fused_constant_pad_nd_0",
    "const float* in_ptr0, float* out_ptr0",
    _LOOP
    % """
auto tmp5 = at::vec::VecMask<int64_t,2>(tmp2 >= tmp4);
auto tmp10 = [&]
{
    auto tmp11 = tmp5.template cast<float,1>().template loadu<float,1>(in_ptr0 + static_cast<int64_t>((-1L) + x0));
    return tmp11;
}
;
auto tmp14 =
[&]
{
    if (tmp5.all_zero())
    {
        return at::vec::Vectorized<float>(-std::numeric_limits<float>::infinity());
    }
    else
    {
        auto tmp12 = tmp10();
        auto tmp13 = at::vec::Vectorized<float>(-std::numeric_limits<float>::infinity());
        return decltype(tmp12)::blendv(tmp13, tmp12, tmp5.template cast<float,1>());
    }
}
()
;
tmp14.store(out_ptr0 + static_cast<int64_t>(x0));
""",
)

CPP_AMAX = cpp(
    "cpp_fused_amax_0",
    "float* in_out_ptr0, const float* in_ptr0, float* out_ptr0",
    """
    auto out_ptr1 = in_out_ptr0;
    {
        float tmp_acc0 = -std::numeric_limits<float>::infinity();
        at::vec::Vectorized<float> tmp_acc0_vec = at::vec::Vectorized<float>(-std::numeric_limits<float>::infinity());
        for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(19L); x1+=static_cast<int64_t>(16L))
        {
            if(C10_LIKELY(x1 >= static_cast<int64_t>(0) && x1 < static_cast<int64_t>(16L)))
            {
                auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x1 + 19L*x0));
                tmp_acc0_vec = at::vec::maximum(tmp_acc0_vec, tmp0);
            }
            if(C10_UNLIKELY(x1 >= static_cast<int64_t>(16L) && x1 < static_cast<int64_t>(19L)))
            {
                auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + 19L*x0)];
                tmp_acc0 = max_propagate_nan(tmp_acc0, tmp0);
            }
        }
        tmp_acc0 = max_propagate_nan(tmp_acc0, at::vec::vec_reduce_all<float, 1>(
            [](at::vec::Vectorized<float>& x, at::vec::Vectorized<float>& y) { return at::vec::maximum(x, y); },
            tmp_acc0_vec));
        in_out_ptr0[static_cast<int64_t>(x0)] = static_cast<float>(tmp_acc0);
    }
    {
        auto tmp0 = out_ptr1[static_cast<int64_t>(x0)];
        auto tmp1 = std::sqrt(tmp0);
        out_ptr0[static_cast<int64_t>(x0)] = tmp1;
    }
""",
)

CPP_SUM_HALF = cpp(
    "cpp_fused_mul_sum_0",
    "const at::Half* in_ptr0, at::Half* out_ptr0",
    """
    float tmp_acc0 = 0;
    at::vec::VectorizedN<float,2> tmp_acc0_vec = at::vec::VectorizedN<float,2>(0);
    for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(32L); x1+=static_cast<int64_t>(32L))
    {
        auto tmp0 = at::vec::Vectorized<at::Half>::loadu(in_ptr0 + static_cast<int64_t>(x1 + 32L*x0));
        auto tmp1 = at::vec::convert<float,2,at::Half,1>(tmp0);
        auto tmp2 = static_cast<float>(300.0);
        auto tmp3 = at::vec::VectorizedN<float,2>(tmp2);
        auto tmp4 = tmp1 * tmp3;
        tmp_acc0_vec = tmp_acc0_vec + tmp4;
    }
    tmp_acc0 = tmp_acc0 + at::vec::vec_reduce_all<float, 2>(
        [](at::vec::Vectorized<float>& x, at::vec::Vectorized<float>& y) { return x + y; }, tmp_acc0_vec);
    out_ptr0[static_cast<int64_t>(x0)] = static_cast<at::Half>(tmp_acc0);
""",
)
