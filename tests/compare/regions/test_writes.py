from __future__ import annotations

import random
import time
from unittest.mock import MagicMock

import pytest

from aoti_debug.compare.regions.writes import LastWrites, begins_with_a_store, buffer_strides, stores_to
from aoti_debug.package.manifest import Kernel, Manifest, Promise
from aoti_debug.package.program_graphs import FOLDING
from aoti_debug.runs.diagnosis.dataflow import ByteRange

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


def span(begin: int, end: int, device: str = "cpu") -> ByteRange:
    return ByteRange(device, begin, end)


def test_the_last_write_of_a_range() -> None:
    writes: LastWrites[str] = LastWrites()
    assert writes.covering(span(0, 8)) is None
    writes.add(span(0, 64), "whole")
    writes.add(span(16, 32), "part")
    assert writes.covering(span(0, 16)) == "whole"
    assert writes.covering(span(40, 64)) == "whole"
    assert writes.covering(span(16, 32)) == "part"
    assert writes.covering(span(8, 24)) is None  # a part was overwritten
    assert writes.covering(span(0, 64)) is None
    assert writes.covering(span(64, 72)) is None
    assert writes.covering(span(0, 16, "cuda:0")) is None
    writes.add(span(0, 64), "again")
    assert writes.covering(span(0, 64)) == "again"


def test_it_agrees_with_a_byte_by_byte_record() -> None:
    chance = random.Random(0)
    writes: LastWrites[int] = LastWrites()
    spans: list[ByteRange] = []
    for number in range(300):
        begin = chance.randrange(100)
        spans.append(span(begin, begin + chance.randrange(1, 30)))
        writes.add(spans[-1], number)
        begin = chance.randrange(100)
        read = span(begin, begin + chance.randrange(1, 30))
        last = next((n for n in reversed(range(len(spans))) if spans[n].overlaps(read)), None)
        expected = last if last is not None and spans[last].covers(read) else None
        assert writes.covering(read) == expected


def test_ten_thousand_writes_and_reads_are_fast() -> None:
    writes: LastWrites[int] = LastWrites()
    began = time.process_time()
    for number in range(10_000):
        writes.add(span(number * 64, number * 64 + 64), number)
        for weight in range(4):
            assert writes.covering(span(-1000 - weight, -999 - weight)) is None
    assert time.process_time() - began < 2


def test_each_function_has_buffers_of_its_own() -> None:
    folded = Promise("buf0", "cpu", "float32", ("6", "6"), ("1", "6"), FOLDING)
    manifest = MagicMock(
        Manifest, promises=(folded, Promise("buf0", "cpu", "float32", ("3", "6"), ("6", "1"))), constants=()
    )
    assert buffer_strides(manifest) == {"buf0": ("6", "1")}
    assert buffer_strides(manifest, FOLDING) == {"buf0": ("1", "6")}
