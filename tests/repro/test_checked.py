"""C++ kernels with checked pointers, called in this process: two compilations for all launches."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import torch

from aoti_debug.repro.templates.accesses import Access, LoadedIndex, lines_of
from aoti_debug.repro.templates.cpp_kernel import CppCompiler, CppKernel
from aoti_debug.repro.templates.kernel import Settings

Argument: TypeAlias = torch.Tensor | ctypes.c_int64 | None
Launch = Callable[..., tuple[Access, ...]]
Divide = Callable[[dict[int, int], dict[int, int]], tuple[Access, ...]]

FLAGS = (
    "-DSTANDALONE_TORCH_HEADER",
    "-DC10_USING_CUSTOM_GENERATED_MACROS",
    "-O1",
    "-std=c++20",
    "-fopenmp",
)
INCLUDES = ("{python}", "{torch}/include", "{torch}/include/torch/csrc/api/include")
LINK = ("-L{torch}/lib", "-ltorch", "-ltorch_cpu", "-lgomp")

# Inductor's forms of scalar code. Line 1 is empty, so that each number below is its own line.
SCALAR = """
extern "C" void cpp_fused_0(const int64_t* in_ptr0, const float* in_ptr1, const int* in_ptr2, float* in_out_ptr0,
                            int64_t* out_ptr0, const int64_t ks0)
{
    auto out_ptr1 = in_out_ptr0;
    #pragma omp parallel for
    for (int64_t x0 = 0; x0 < ks0; x0 += 1) {
        auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
        auto tmp1 = int64_t(tmp0 + 10L);
        auto tmp2 = tmp0 < 0 ? tmp1 : tmp0;
        AOTI_TORCH_CHECK((0 <= tmp2) & (tmp2 < 10L), "index out of bounds: 0 <= tmp2 < 10L");
        for (int64_t x1 = 0; x1 < 4; x1 += 1) {
            auto tmp3 = in_ptr1[static_cast<int64_t>(x1 + 4L * tmp2)];
            out_ptr1[static_cast<int64_t>(x1 + 4L * x0)] = tmp3;
        }
        auto tmp4 = in_ptr2[static_cast<int64_t>(x0)];
        atomic_add(&out_ptr0[static_cast<int64_t>(tmp4)], static_cast<int64_t>(1));
    }
}
"""

VECTOR = """
extern "C" void cpp_fused_1(const int64_t* in_ptr0, const float* in_ptr1, const bool* in_ptr2, float* out_ptr0,
                            float* out_ptr1, float* out_ptr2, const int64_t ks0)
{
    auto tmp0 = at::vec::VectorizedN<int64_t,2>::loadu(in_ptr0, static_cast<int64_t>(8));
    auto tmp1 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(ks0), static_cast<int64_t>(8));
    tmp1.store(out_ptr0 + static_cast<int64_t>(0L), static_cast<int64_t>(5));
    atomic_add_vec<float, 2, 1>(out_ptr1, tmp0, tmp1);
    auto tmp2 = at::vec::VecMask<float,1>::from(in_ptr2, static_cast<int64_t>(8));
    auto tmp3 = tmp2.template loadu<float,1>(in_ptr1 + static_cast<int64_t>(16L - 4L));
    tmp3.store(out_ptr2 + static_cast<int64_t>(ks0));
    float tile[64];
    transpose_mxn<float,8,2,false>(in_ptr1 + static_cast<int64_t>(0L), static_cast<int64_t>(2L), tile, 8L);
    out_ptr0[5] = tile[8];
}
"""

# A loop of as many rounds as memory says, whose indices come from an array, and which names a parameter anew.
COUNTED = """
#include <ATen/Parallel.h>
extern "C" void cpp_fused_2(const int* rounds, const int64_t* offset, const float* bias, float* out_ptr0)
{
    auto in_ptr0 = bias;
    TORCH_CHECK(out_ptr0 != nullptr);
    for (int64_t x0 = 0; x0 < rounds[0]; x0 += 1) {
        int64_t at[4];
        float tmpbuf[4];
        for (int64_t x1 = 0; x1 < 4; x1 += 1) {
            at[x1] = offset[static_cast<int64_t>(x1 + 4L * x0)];
        }
        for (int64_t x1 = 0; x1 < 4; x1 += 1) {
            AOTI_TORCH_CHECK((0 <= at[x1]) & (at[x1] < 8L), "index out of bounds: 0 <= tmp0 < 8L");
            tmpbuf[x1] = in_ptr0[static_cast<int64_t>(at[x1])];
        }
        for (int64_t x1 = 0; x1 < 4; x1 += 1) {
            out_ptr0[static_cast<int64_t>(x1 + 4L * x0)] = tmpbuf[x1];
        }
    }
}
"""


HAS_AVX2 = platform.machine() == "x86_64" and "avx2" in Path("/proc/cpuinfo").read_text()
AVX2 = pytest.mark.skipif(not HAS_AVX2, reason="the CPU has no AVX2")
AVX2_FLAGS = ("-DCPU_CAPABILITY_AVX2", "-mavx2", "-mfma", "-ffp-contract=off")


def kernel(folder: Path, name: str, source: str, *flags: str) -> Launch:
    made = CppKernel(name, source, CppCompiler("g++", (*FLAGS, *flags), INCLUDES, LINK))
    made.prepare(Settings(folder, backend="checked"))

    def launch(**arguments: Argument) -> tuple[Access, ...]:
        made.name_arguments({name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)})
        made(*arguments.values())
        findings = made.findings()
        assert findings is not None
        return findings.accesses

    return launch


@pytest.fixture(scope="module")
def scalar(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[tuple[Access, ...], torch.Tensor]]:
    run = kernel(tmp_path_factory.mktemp("scalar"), "cpp_fused_0", SCALAR, "-DCPU_CAPABILITY_DEFAULT")

    def launch(
        index: list[int], counted: list[int], rows: int = 10, out_rows: int = 6
    ) -> tuple[tuple[Access, ...], torch.Tensor]:
        table, out = torch.arange(40.0).view(10, 4)[:rows], torch.full((out_rows, 4), 7.0)
        numbers = torch.tensor(counted, dtype=torch.int32)
        n = ctypes.c_int64(len(index))
        accesses = run(
            index=torch.tensor(index), table=table, numbers=numbers, buf1=out, buf2=torch.zeros(3).long(), s0=n
        )
        return accesses, out

    return launch


def test_a_launch_that_is_right(scalar: Callable[..., tuple[tuple[Access, ...], torch.Tensor]]) -> None:
    accesses, out = scalar([3, -1, 0, 9, 1, 2], [0, 1, 2, 0, 1, 2])
    assert accesses == ()
    assert out[:, 0].tolist() == [12.0, 36.0, 0.0, 36.0, 4.0, 8.0]


def test_the_index_that_led_outside_is_named(
    scalar: Callable[..., tuple[tuple[Access, ...], torch.Tensor]],
) -> None:
    accesses, out = scalar([3, -1, 0, 2199023255552, 1, 2], [0, 1, 2, 0, 1, 2])
    check, load = accesses
    assert (check.seen_by, check.what) == ("assertion", "index out of bounds: 0 <= tmp2 < 10L")
    assert check.index == load.index == LoadedIndex("index", 3, 2199023255552, "in_ptr0")
    assert (load.kind, load.argument, load.parameter) == ("load", "table", "in_ptr1")
    assert (load.element, load.elements, load.bytes, load.count) == (4 * 2199023255552, 40, 4, 4)
    assert lines_of(load) == [
        "out-of-bounds load from table (in_ptr1): element 8796093022208 of 40, 8796093022169 past the end; returned 0",
        "  SOURCE:13: auto tmp3 = in_ptr1[static_cast<int64_t>(x1 + 4L * tmp2)];",
        "  the index came from index (in_ptr0): element 3 is 2199023255552",
        "  4 such accesses at this line",
    ]
    assert out[3].tolist() == [0.0] * 4
    assert out[4].tolist() == [4.0, 5.0, 6.0, 7.0]


def test_negative_indices_and_atomics(scalar: Callable[..., tuple[tuple[Access, ...], torch.Tensor]]) -> None:
    accesses, _ = scalar([-11, -10], [-2, 1])
    _, load, atomic = accesses
    assert (load.element, load.beyond, load.index) == (-4, -4, LoadedIndex("index", 0, -11, "in_ptr0"))
    assert (atomic.kind, atomic.argument, atomic.element) == ("atomic", "buf2", -2)
    assert atomic.index == LoadedIndex("numbers", 0, -2, "in_ptr2")


def test_what_no_index_explains(scalar: Callable[..., tuple[tuple[Access, ...], torch.Tensor]]) -> None:
    """Row 5 of an output that has five; part of a table inside its storage; an empty table."""
    accesses, _ = scalar([1] * 6, [0] * 6, out_rows=5)
    (store,) = accesses
    assert (store.kind, store.argument, store.element, store.beyond, store.count) == ("store", "buf1", 20, 1, 4)
    assert store.index is None
    (inside,) = scalar([5], [0], rows=5)[0]
    assert (inside.element, inside.elements, inside.in_storage) == (20, 20, True)
    assert inside.index == LoadedIndex("index", 0, 5, "in_ptr0")
    (empty,) = scalar([2], [0], rows=0)[0]
    assert (empty.element, empty.elements, empty.index) == (8, 0, None)


@AVX2
def test_vectors(tmp_path: Path) -> None:
    run = kernel(tmp_path, "cpp_fused_1", VECTOR, *AVX2_FLAGS)
    mask = torch.tensor([True] * 4 + [False] * 4)
    index = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7])
    arguments = {
        "index": index,
        "table": torch.arange(16.0),
        "mask": mask,
        "buf0": torch.zeros(6),
        "buf1": torch.zeros(8),
        "buf2": torch.zeros(9),
    }
    assert run(**arguments, s0=ctypes.c_int64(1)) == ()
    assert arguments["buf0"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 1.0]
    assert arguments["buf1"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert arguments["buf2"].tolist() == [0.0, 12.0, 13.0, 14.0, 15.0, 0.0, 0.0, 0.0, 0.0]

    index[6], mask[5] = 1000, True
    load, atomic, masked, store = run(**arguments, s0=ctypes.c_int64(10))
    assert (load.kind, load.argument, load.element, load.beyond, load.count) == ("load", "table", 16, 1, 2)
    assert (atomic.kind, atomic.argument, atomic.element, atomic.count) == ("atomic", "buf1", 1000, 1)
    assert atomic.index == LoadedIndex("index", 6, 1000, "in_ptr0")
    assert (masked.kind, masked.argument, masked.element, masked.count) == ("load", "table", 17, 1)
    assert (store.kind, store.argument, store.element, store.count) == ("store", "buf2", 10, 8)
    assert [a.source.line for a in (load, atomic, masked, store) if a.source is not None] == [6, 8, 10, 11]
    assert arguments["buf0"].tolist()[:5] == [10.0, 11.0, 12.0, 13.0, 14.0]


def test_a_number_of_rounds_is_no_index(tmp_path: Path) -> None:
    """Without rounds there is no access at all; the bad index is not the last one that its line loaded."""
    run = kernel(tmp_path, "cpp_fused_2", COUNTED)
    offset = torch.arange(8)
    arguments = {"rounds": torch.tensor([2], dtype=torch.int32), "offset": offset, "bias": torch.arange(8.0)}
    assert run(**arguments, buf0=torch.zeros(8)) == ()
    offset[5] = 200_000_000_000
    check, load = run(**arguments, buf0=torch.zeros(8))
    assert check.what == "index out of bounds: 0 <= tmp0 < 8L"
    assert (load.kind, load.argument, load.element) == ("load", "bias", 200_000_000_000)
    assert check.index == load.index == LoadedIndex("offset", 5, 200_000_000_000, "offset")
    short = run(**arguments, buf0=torch.zeros(8)[:6])
    assert (short[-1].kind, short[-1].argument, short[-1].element, short[-1].index) == ("store", "buf0", 6, None)


def test_pointers_that_cannot_be_checked(tmp_path: Path) -> None:
    source = 'extern "C" void cpp_fused_2(const float* in_ptr0) { reinterpret_cast<const int*>(in_ptr0)[0]; }\n'
    with pytest.raises(SystemExit, match="cpp_fused_2 cannot be run with checked pointers: the kernel does not comp"):
        kernel(tmp_path, "cpp_fused_2", source)


# Divisions of integers, as torch 2.13 writes them, and of floats; both forms.
DIVISION = """
extern "C" void cpp_fused_2(const int64_t* in_ptr0, const int64_t* in_ptr1, const float* in_ptr2, int64_t* out_ptr0,
                            const int64_t ks0)
{
    for (int64_t x0 = 0; x0 < ks0; x0 += 1) {
        auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
        auto tmp1 = in_ptr1[static_cast<int64_t>(x0)];
        auto tmp2 = static_cast<int64_t>(1);
        auto tmp3 = int64_t(tmp1 - tmp2);
        auto tmp4 = tmp0 / tmp3;
        auto tmp5 = in_ptr2[static_cast<int64_t>(x0)];
        auto tmp6 = tmp5 / tmp5;
        out_ptr0[static_cast<int64_t>(x0)] = tmp4 + static_cast<int64_t>(tmp6);
    }
    auto tmp7 = at::vec::VectorizedN<int64_t,2>::loadu(in_ptr0, static_cast<int64_t>(8));
    auto tmp8 = at::vec::VectorizedN<int64_t,2>::loadu(in_ptr1, static_cast<int64_t>(8));
    auto tmp9 = at::vec::VectorizedN<int64_t,2>(static_cast<int64_t>(1));
    auto tmp10 = tmp8 - tmp9;
    auto tmp11 = tmp7 / decltype(tmp10)::set(decltype(tmp10)(1), tmp10, 8);
    tmp11.store(out_ptr0, static_cast<int64_t>(8));
}
"""


WHOLE = """
extern "C" void cpp_fused_3(const int64_t* in_ptr0, const int64_t* in_ptr1, int64_t* out_ptr0)
{
    for (int64_t x0 = 0; x0 < 8; x0 += 1) {
        auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
        auto tmp1 = in_ptr1[static_cast<int64_t>(x0)];
        auto tmp2 = tmp0 / tmp1;
        out_ptr0[static_cast<int64_t>(x0)] = tmp2;
    }
}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Divide:
    run = kernel(tmp_path_factory.mktemp("whole"), "cpp_fused_3", WHOLE, "-DCPU_CAPABILITY_DEFAULT")

    def launch(dividends: dict[int, int], divisors: dict[int, int]) -> tuple[Access, ...]:
        total, size = changed(torch.arange(8) + 50, dividends), changed(torch.arange(8) + 5, divisors)
        return run(total=total, size=size, buf0=torch.zeros(8).long())

    return launch


def changed(tensor: torch.Tensor, changes: dict[int, int]) -> torch.Tensor:
    for element, value in changes.items():
        tensor[element] = value
    return tensor


@pytest.fixture(scope="module")
def division(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[dict[int, int], dict[int, int]], tuple[Access, ...]]:
    run = kernel(tmp_path_factory.mktemp("division"), "cpp_fused_2", DIVISION, *AVX2_FLAGS)

    def launch(dividends: dict[int, int], divisors: dict[int, int]) -> tuple[Access, ...]:
        total, size = changed(torch.arange(8) + 50, dividends), changed(torch.arange(8) + 5, divisors)
        return run(total=total, size=size, real=torch.zeros(8), buf0=torch.zeros(8).long(), s0=ctypes.c_int64(8))

    return launch


@AVX2
def test_the_element_that_makes_a_divisor_zero(
    division: Divide,
) -> None:
    assert division({}, {}) == ()
    scalar, vector = division({}, {6: 1})
    assert (scalar.seen_by, scalar.kind, scalar.what) == ("division", "division", "integer division by zero")
    assert scalar.index == vector.index == LoadedIndex("size", 6, 1, "in_ptr1")
    assert lines_of(scalar) == [
        "integer division by zero",
        "  SOURCE:10: auto tmp4 = tmp0 / tmp3;",
        "  the divisor came from size (in_ptr1): element 6 is 1",
    ]


@AVX2
def test_a_quotient_that_does_not_fit(division: Divide, whole: Divide) -> None:
    """Both the dividend and the divisor make it: neither is named, but for a divisor that is read as -1."""
    scalar, vector = division({2: -(2**63)}, {2: 0})
    text = f"integer division of {-(2**63)} / -1, which does not fit into 64 bits"
    assert (scalar.what, vector.what) == (text, text)
    assert scalar.index is None
    (scalar,) = whole({2: -(2**63)}, {2: -1})
    assert (scalar.what, scalar.index) == (text, LoadedIndex("size", 2, -1, "in_ptr1"))
