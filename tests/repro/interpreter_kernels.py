# ruff: noqa: N803 (BLOCK, as in every Triton kernel)
"""Small kernels for the interpreter's tests: one for each kind of access, and of what Python means in a kernel."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from tests.repro.interpreter_inductor_kernels import maximum

HALF = tl.constexpr(0.5)


@triton.jit
def one():
    return 1


@triton.jit
def copy(source, target, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + i, tl.load(source + i, mask=i < n, other=0), mask=i < n)


@triton.jit
def copy_overlapping(source, target, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.extra.cuda.gdc_wait()
    value = tl.load(source + i, mask=i < n, other=0)
    gdc_launch_dependents()
    tl.store(target + i, value, mask=i < n)


@triton.jit
def copy_unmasked(source, target, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + i, tl.load(source + i))


@triton.jit
def gather(index, source, target, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.load(index + i, mask=i < n)
    tl.store(target + i, tl.load(source + k, mask=i < n), mask=i < n)


@triton.jit
def scatter(index, target, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.load(index + i, mask=i < n)
    tl.atomic_add(target + k, 1.0, mask=i < n)


@triton.jit
def rows(source, target, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(target + row * columns + i, tl.load(source + row * stride + i, mask=i < columns), mask=i < columns)


@triton.jit
def far(source, target, step, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(target + i, tl.load(source + i * step))


@triton.jit
def either(left, right, target, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    pointers = tl.where(i % 2 == 0, left + i, right + i)
    tl.store(target + i, tl.load(pointers, mask=i < n))


@triton.jit
def add_rounded(x, y, target, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(target + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def convert(x, target, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(target + i, tl.load(x + i, mask=i < n).to(target.dtype.element_ty), mask=i < n)


@triton.jit
def collatz(x, target, BLOCK: tl.constexpr):
    n = tl.load(x + tl.program_id(0))
    steps = 0
    while n != 1:
        n = tl.where(n % 2 == 0, n // 2, 3 * n + 1)
        steps += 1
    tl.store(target + tl.program_id(0), steps)


@triton.jit
def atomics(target, old, x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.store(old + i, tl.atomic_add(target + i * 0, value))
    tl.atomic_max(target + 1 + i * 0, value)
    tl.atomic_min(target + 2 + i * 0, value)
    tl.atomic_xchg(target + 3 + i * 0, value)
    tl.atomic_cas(target + 4 + i * 0, 0, value)


@triton.jit
def optional(x, bias, target, scale, HAS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i) * scale
    if bias is not None:
        value += tl.load(bias + i)
    if HAS:
        value = value + 1
    tl.store(target + i, value)


@triton.jit
def matmul(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    product = tl.dot(tl.load(a + m * K + k[None, :]), tl.load(b + k[:, None] * N + n))
    tl.store(c + m * N + n, product)


@triton.jit
def by_assembly(x, target, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    value = tl.inline_asm_elementwise(
        "fma.rn.f32 $0, $1, $2, $3;", "=f, f, f, f", [value, value, 1.0], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(target + i, value)


@triton.jit
def unknown_assembly(x, target, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.inline_asm_elementwise(
        "vabsdiff4.u32 $0, $1, $1;", "=r, r", [tl.load(x + i)], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(target + i, value)


@triton.jit
def waits(flag, BLOCK: tl.constexpr):
    while tl.atomic_add(flag, 0) == 0:
        pass


@triton.jit
def reversed_scan(x, target, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(target + i, tl.associative_scan(tl.load(x + i), 0, maximum, reverse=True))


@triton.jit
def of_methods(x, target, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.store(
        target + i, tl.sigmoid(value) + value.sum(0) + tl.cdiv(7, 2) + tl.max(value.reshape(2, BLOCK // 2), 1).sum()
    )


@triton.jit
def described(x, target, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, B])
    result = tl.make_tensor_descriptor(target, [M, N], [N, 1], [B, B])
    result.store([0, 0], source.load([0, 0]) * 2)


@triton.jit
def of_python(x, y, target, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    picked = (0 <= a < n) and not (b > a)
    nothing = n > 0 and (x is None or n == -1)
    if nothing:
        picked = picked or (a == a)
    tl.store(target + i, tl.where(picked, min(a, b), max(a, b, 3)))


@triton.jit
def by_block_pointer(x, target, M, N, B: tl.constexpr):
    source = tl.make_block_ptr(x, (M, N), (N, 1), (0, 0), (B, B), (1, 0))
    result = tl.make_block_ptr(target, (B, B), (B, 1), (0, 0), (B, B), (1, 0))
    first = tl.load(source, boundary_check=(0, 1), padding_option="zero")
    tl.store(result, first + tl.load(tl.advance(source, (0, 1)), boundary_check=(1,)))


@triton.jit
def by_address(address, target, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    pointers = tl.load(address).to(tl.pointer_type(tl.float32)) + i
    tl.store(target + i, HALF * tl.load(pointers) + HALF)


@triton.jit
def two_indices(rows, columns, source, target, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    k = tl.load(rows + i) * 4 + tl.load(columns + i)
    tl.store(target + i, tl.load(source + k.to(tl.int64)))


@triton.jit
def extremes(target, x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.atomic_max(target + i % 2, value)
    tl.atomic_min(target + 2 + i % 2, value, mask=value < 1.0)
