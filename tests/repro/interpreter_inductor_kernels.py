# ruff: noqa: F841, N803, N806, RET504, RUF059, SIM300 (as Inductor writes them)
"""Kernels as Inductor writes them, with the helpers that they call: material for the interpreter's tests."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import math as tl_math
from triton.language.extra import libdevice

# ---- helpers of Inductor


@triton.jit
def promote_to_tensor(x):
    # Addition promotes to tensor for us
    return x + tl.zeros((1,), tl.int1)


@triton.jit
def is_floating(x):
    return promote_to_tensor(x).dtype.is_floating()


@triton.jit
def maximum(a, b):
    mask = a > b
    if is_floating(a):
        mask |= a != a
    return tl.where(mask, a, b)


@triton.jit
def max2(a, dim):
    return tl.reduce(a, dim, maximum)


@triton.jit
def maximum_with_index(a_value, a_index, b_value, b_index):
    mask = a_value > b_value
    equal = a_value == b_value
    if is_floating(a_value):
        a_isnan = a_value != a_value
        b_isnan = b_value != b_value
        mask |= a_isnan & (not b_isnan)
        equal |= a_isnan & b_isnan
    mask |= equal & (a_index < b_index)
    return tl.where(mask, a_value, b_value), tl.where(mask, a_index, b_index)


@triton.jit
def max_with_index(value, index, dim):
    return tl.reduce((value, index), dim, maximum_with_index)


@triton.jit
def welford_reduce(value, mean, m2, weight, first_iteration):
    if first_iteration:
        new_weight = tl.full(weight.shape, 1, weight.dtype)
        new_mean = value
        new_m2 = tl.zeros_like(m2)
    else:
        delta = value - mean
        new_weight = weight + 1
        new_mean = mean + delta / new_weight
        new_m2 = m2 + delta * (value - new_mean)
    return new_mean, new_m2, new_weight


@triton.jit
def welford_combine(mean_1, m2_1, weight_1, mean_2, m2_2, weight_2):
    delta = mean_2 - mean_1
    new_weight = weight_1 + weight_2
    w2_over_w = tl.where(new_weight == 0.0, 0.0, weight_2 / new_weight)
    return (mean_1 + delta * w2_over_w, m2_1 + m2_2 + delta * delta * weight_1 * w2_over_w, new_weight)


@triton.jit
def welford(mean, m2, weight, dim):
    return tl.reduce((mean, m2, weight), dim, welford_combine)


@triton.jit
def _triton_helper_fn_add0(arg0_0, arg1_0):
    tmp0 = arg0_0 + arg1_0
    return tmp0


# ---- as Inductor writes them


@triton.jit
def triton_per_fused_gelu_native_layer_norm_3(in_out_ptr0, in_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr):
    xnumel = 32
    r0_numel = 64
    R0_BLOCK: tl.constexpr = 64
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_1 = r0_index
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (r0_1), None, eviction_policy="evict_last")
    tmp1 = tl.load(in_out_ptr0 + (r0_1 + 64 * x0), xmask, other=0.0)
    tmp2 = tmp0 + tmp1
    tmp3 = tl.full([1, 1], 0.5, tl.float32)
    tmp4 = tmp2 * tmp3
    tmp5 = tl.full([1, 1], 0.7071067811865476, tl.float32)
    tmp6 = tmp2 * tmp5
    tmp7 = libdevice.erf(tmp6)
    tmp8 = tl.full([1, 1], 1.0, tl.float32)
    tmp9 = tmp7 + tmp8
    tmp10 = tmp4 * tmp9
    tmp11 = tl.broadcast_to(tmp10, [XBLOCK, R0_BLOCK])
    tmp16 = tl.where(xmask, tmp11, 0)
    tmp17 = tl.sum(tmp16, 1)[:, None].to(tl.float32)
    tmp18 = tl.full([1, 1], 64, tl.int32)
    tmp19 = tmp18.to(tl.float32)
    tmp20 = tmp17 / tmp19
    tmp21 = tmp11 - tmp20
    tmp22 = tmp21 * tmp21
    tmp25 = tl.where(xmask, tmp22, 0)
    tmp26 = tl.sum(tmp25, 1)[:, None].to(tl.float32)
    tmp27 = tmp10 - tmp20
    tmp28 = tl.full([1, 1], 64.0, tl.float32)
    tmp29 = tmp26 / tmp28
    tmp30 = tl.full([1, 1], 1e-05, tl.float32)
    tmp31 = tmp29 + tmp30
    tmp32 = libdevice.rsqrt(tmp31)
    tmp33 = tmp27 * tmp32
    tl.store(in_out_ptr0 + (r0_1 + 64 * x0), tmp33, xmask)


@triton.jit
def triton_per_fused__softmax_4(in_ptr0, out_ptr2, xnumel, r0_numel, XBLOCK: tl.constexpr):
    xnumel = 30
    R0_BLOCK: tl.constexpr = 128
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_1 = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_1 < r0_numel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (r0_1 + r0_numel * x0), r0_mask & xmask, other=0.0).to(tl.float32)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp5 = tl.where(r0_mask & xmask, tmp1, float("-inf"))
    tmp6 = max2(tmp5, 1)[:, None].to(tl.float32)
    tmp7 = tmp1 - tmp6
    tmp8 = libdevice.exp(tmp7)
    tmp11 = tl.where(r0_mask & xmask, tmp8, 0)
    tmp12 = tl.sum(tmp11, 1)[:, None].to(tl.float32)
    tmp15 = tmp8 / tmp12
    tl.store(out_ptr2 + (r0_1 + r0_numel * x0), tmp15, r0_mask & xmask)


@triton.jit
def triton_red_fused_var_mean_argmax_5(
    in_ptr0, out_ptr0, out_ptr1, out_ptr2, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr
):
    xnumel = 6
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    x0 = xindex
    tmp2_mean = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    tmp2_m2 = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    tmp2_weight = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    _tmp4 = tl.full([XBLOCK, R0_BLOCK], float("-inf"), tl.float32)
    _tmp4_index = tl.full([XBLOCK, R0_BLOCK], 2147483647, tl.int32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        tmp0 = tl.load(in_ptr0 + (r0_index + r0_numel * x0), r0_mask & xmask, eviction_policy="evict_first", other=0.0)
        tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
        new_mean, new_m2, new_weight = welford_reduce(tmp1, tmp2_mean, tmp2_m2, tmp2_weight, r0_offset == 0)
        tmp2_mean = tl.where(r0_mask & xmask, new_mean, tmp2_mean)
        tmp2_m2 = tl.where(r0_mask & xmask, new_m2, tmp2_m2)
        tmp2_weight = tl.where(r0_mask & xmask, new_weight, tmp2_weight)
        next_max, next_index = maximum_with_index(_tmp4, _tmp4_index, tmp1, r0_index)
        _tmp4 = tl.where(r0_mask & xmask, next_max, _tmp4)
        _tmp4_index = tl.where(r0_mask & xmask, next_index, _tmp4_index)
    mean, m2, weight = welford(tmp2_mean, tmp2_m2, tmp2_weight, 1)
    tl.store(out_ptr0 + (x0), mean[:, None], xmask)
    tl.store(out_ptr1 + (x0), (m2 / weight)[:, None], xmask)
    value, index = max_with_index(_tmp4, _tmp4_index, 1)
    tl.store(out_ptr2 + (x0), index[:, None], xmask)


@triton.jit
def triton_per_fused_cumsum_12(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr):
    xnumel = 128
    R0_BLOCK: tl.constexpr = 32
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_1 = tl.arange(0, R0_BLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (xindex + 128 * r0_1), xmask, other=0.0)
    tmp2 = tl.broadcast_to(tmp0.to(tl.float32), [XBLOCK, R0_BLOCK])
    (tmp3,) = tl.associative_scan((tmp2,), 1, _triton_helper_fn_add0)
    tl.store(out_ptr0 + (xindex + 128 * r0_1), tmp3, xmask)


@triton.jit
def triton_poi_fused_index_put_10(
    in_ptr0, in_ptr1, out_ptr0, out_ptr1, ynumel, xnumel, Y: tl.constexpr, X: tl.constexpr
):
    ynumel = 4
    xnumel = 128
    y0 = tl.program_id(1) * Y + tl.arange(0, Y)[:, None]
    ymask = y0 < ynumel
    x1 = tl.program_id(0) * X + tl.arange(0, X)[None, :]
    xmask = x1 < xnumel
    tmp0 = tl.load(in_ptr0 + (y0), ymask, eviction_policy="evict_last")
    tmp8 = tl.load(in_ptr1 + (x1 + 128 * y0), xmask & ymask, eviction_policy="evict_last")
    tmp1 = tl.full([1, 1], 32, tl.int32)
    tmp2 = tmp0 + tmp1
    tmp3 = tmp0 < 0
    tmp4 = tl.where(tmp3, tmp2, tmp0)
    tl.device_assert(((0 <= tmp4) & (tmp4 < 32)) | ~(ymask), "index out of bounds: 0 <= tmp4 < 32")
    tmp6 = tl.full([1, 1], 1.0, tl.float32)
    tl.atomic_add(out_ptr0 + (tl.broadcast_to(x1 + 128 * tmp4, [Y, X])), tmp6, xmask & ymask, sem="relaxed")
    tl.atomic_add(out_ptr1 + (tl.broadcast_to(x1 + 128 * tmp4, [Y, X])), tmp8, xmask & ymask, sem="relaxed")


@triton.jit
def triton_poi_fused_embedding_1(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x1 = xindex // 4
    x0 = xindex % 4
    tmp0 = tl.load(in_ptr0 + (x1), xmask, eviction_policy="evict_last")
    tmp6 = tl.load(in_ptr1 + (x0 + 4 * tmp0), xmask)
    tl.store(out_ptr0 + (xindex), tl_math.abs(tmp6), xmask)
