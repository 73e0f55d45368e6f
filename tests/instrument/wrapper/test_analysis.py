"""Where the wrapper's buffers get their memory, in texts and in real wrappers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_debug.instrument.builder.instrument import instrument
from aoti_debug.instrument.wrapper import analysis
from aoti_debug.instrument.wrapper.analysis import analyse
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import mask
from aoti_debug.package.manifest import Allocation
from tests.instrument.wrapper import texts
from tests.paths import GOLDEN

ALLOCATIONS = GOLDEN / "allocations"
EMPTY = "aoti_torch_empty_strided(2, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cpu"


def wrapper(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return (
        "namespace torch::aot_inductor {\n"
        "void AOTInductorModel::run_impl(AtenTensorHandle* input_handles, AtenTensorHandle* output_handles) {\n"
        f"{body}\n}}\n}}\n"
    )


def find(*lines: str) -> list[Allocation]:
    text = wrapper(*lines)
    return [allocated.allocation for allocated in analysis.find_allocations(text, mask(text))]


def test_a_buffer() -> None:
    assert find(f"AOTI_TORCH_ERROR_CODE_CHECK({EMPTY}, this->device_idx_, &buf0_handle));") == [
        Allocation("buf0", 3, True)
    ]


def test_a_buffer_of_a_branch_and_one_of_a_loop() -> None:
    allocated = find(
        "if (buf1_scalar) {",
        "    // subgraph: true_graph_0",
        f"    AOTI_TORCH_ERROR_CODE_CHECK({EMPTY}, this->device_idx_, &true_graph_0_buf0_handle));",
        "}",
        "while (1) {",
        f"    AOTI_TORCH_ERROR_CODE_CHECK({EMPTY}, this->device_idx_, &while_loop_body_graph_0_buf3_handle));",
        "}",
    )
    assert [(a.name, a.line, a.guarded) for a in allocated] == [
        ("true_graph_0_buf0", 5, True),
        ("while_loop_body_graph_0_buf3", 8, True),
    ]


def test_pinned_memory_and_parts_of_a_pool_have_no_guards() -> None:
    pinned = EMPTY.replace("empty_strided", "empty_strided_pinned")
    part = "aoti_torch__alloc_from_pool(pool1, 64L, cached_torch_dtype_float32, 2, int_array_2, int_array_3, &tmp_0)"
    allocated = find(
        f"AOTI_TORCH_ERROR_CODE_CHECK({pinned}, this->device_idx_, &buf0_handle));",
        f"AOTI_TORCH_ERROR_CODE_CHECK({EMPTY}, this->device_idx_, &pool1_handle));",
        f"AOTI_TORCH_ERROR_CODE_CHECK({part});",
        "auto buf7 = RAIIAtenTensorHandle(tmp_0);",
    )
    assert [(a.name, a.guarded) for a in allocated] == [("buf0", False), ("pool1", True), ("buf7", False)]
    assert allocated[0].reason == "it is in pinned host memory"
    assert allocated[2].reason == "it lies in pool1 beside other buffers; only the pool has guards"


def test_what_is_commented_out_is_none() -> None:
    assert find(f"// {EMPTY}, this->device_idx_, &buf0_handle));", 'auto s = "aoti_torch_empty_strided(1)";') == []


def test_only_heads_of_calls_that_can_be_guarded_change() -> None:
    pinned = EMPTY.replace("empty_strided", "empty_strided_pinned")
    text = wrapper(f"f({pinned}, 0, &buf0_handle));", f"f({EMPTY}, 0, &buf1_handle));")
    changed = instrument(text, analyse(text)).splitlines()
    expected = EMPTY.replace("strided(", 'strided, "@').replace('strided, "@', "strided, ")
    assert f'    f(aoti_debug::allocate(1, "buf1", {expected}, 0, &buf1_handle));' in changed
    assert f"    f({pinned}, 0, &buf0_handle));" in changed


@pytest.mark.parametrize("name", ["control", "cuda", "planned"])
def test_real_wrappers(name: str, golden: Callable[[Path, str], None]) -> None:
    """Every allocation is allocated, under the name that the wrapper then gives it; indices are places in the list."""
    text = (ALLOCATIONS / f"{name}.cpp.txt").read_text()
    allocated = [each.allocation for each in analysis.find_allocations(text, mask(text))]
    golden(ALLOCATIONS / f"{name}.found.txt", "".join(f"{a.line} {a.name} {a.reason or '-'}\n" for a in allocated))
    assert sum(a.guarded for a in allocated) == mask(text).count("aoti_torch_empty_strided(")
    changed = instrument(text, analyse(text))
    for index, allocation in enumerate(allocated):
        head = f'aoti_debug::allocate({index}, "{allocation.name}", aoti_torch_empty_strided, '
        assert (head in changed) == allocation.guarded
        assert f"{allocation.name}({allocation.name}_handle)" in text or f"auto {allocation.name} = RAII" in text


def test_operators_that_allocate_their_outputs_are_listed() -> None:
    allocated = texts.analysis("mixed").allocations
    listed = {a.name: a.reason for a in allocated if not a.guarded}
    sites = texts.analysis("mixed").sites
    sort = next(site for site in sites if "sort" in site.callee)
    assert all(reason for reason in listed.values())
    assert any(reason == f"{sort.op or sort.kernel} allocates it itself" for reason in listed.values())
    assert not any(a.guarded for a in allocated if a.reason)
