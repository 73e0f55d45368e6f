"""The lines of Triton kernels, by the file and the line that debug information names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch._inductor.codecache

from aoti_debug.instrument.wrapper.launches.kernels import functions
from aoti_debug.package.manifest import Kernel
from aoti_debug.runs.kernel_source.triton_text import line_of, pointers_of
from tests.factories import triton_kernel
from tests.instrument.wrapper import texts


def kernel_of(wrapper: str, name: str) -> Kernel:
    function = functions(texts.text(wrapper))[f"call_{name}"]
    return replace(triton_kernel(name), source=function.source, first_line=function.first_line)


@pytest.mark.parametrize(
    ("wrapper", "name", "first"),
    [("cuda", "triton_poi_fused_gt_sum_0", 2), ("torch_2.14.1_own_kernel", "add_kernel_0", 3)],
)
def test_each_line_is_that_of_the_file_that_torch_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapper: str, name: str, first: int
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    kernel = kernel_of(wrapper, name)
    written = "\n" * (first - 1) + kernel.source
    _, path = torch._inductor.codecache.PyCodeCache.write(written)
    expected = [line.strip() for line in Path(path).read_text().splitlines()]
    assert [line_of(kernel, path, number) for number in range(1, len(expected) + 1)] == expected
    assert line_of(kernel, path, len(expected) + 1) == ""
    assert line_of(replace(kernel, source=kernel.source + "# another\n"), path, first) == ""
    assert line_of(replace(kernel, first_line=0), path, first) == ""


@pytest.mark.parametrize(
    ("line", "pointers"),
    [
        ("tmp0 = tl.load(in_ptr0 + (x0), xmask, other=0.0)", {"in_ptr0"}),
        ("tl.store(out_ptr0 + (x0), tmp0 + in_ptr0, xmask)", {"out_ptr0"}),
        ("a = tl.load(in_ptr0 + tl.load(in_ptr1))", {"in_ptr0", "in_ptr1"}),
        ("a = in_ptr0 + in_ptr1", set()),
        ("a = tl.load(in_ptr0 +", set()),
    ],
)
def test_the_pointers_that_a_line_goes_through(line: str, pointers: set[str]) -> None:
    assert pointers_of(line, frozenset({"in_ptr0", "in_ptr1", "out_ptr0"})) == pointers
