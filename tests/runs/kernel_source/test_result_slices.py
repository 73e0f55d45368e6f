from __future__ import annotations

import pytest

from aoti_debug.package.manifest import Kernel
from aoti_debug.runs.kernel_source import result_slices
from tests.triage import kernel_sources as sources


def slices_of(kernel: Kernel, *pointers: str) -> dict[str, tuple[set[str], set[int]]]:
    by_result = result_slices.kernel_slices(kernel, frozenset(pointers))
    return {name: (set(s.sources), set(s.infinities)) for name, s in by_result.items()}


@pytest.mark.parametrize("kernel", [sources.TRITON_MASKED_FILL, sources.CPP_MASKED_FILL], ids=lambda k: k.language)
def test_each_result_has_its_own_constants(kernel: Kernel) -> None:
    by_result = slices_of(kernel, "in_ptr0", "in_ptr1", "out_ptr0", "out_ptr1")
    assert by_result["out_ptr0"][1] == {-1}
    assert by_result["out_ptr1"] == ({"in_ptr1"}, set())


@pytest.mark.parametrize("kernel", [sources.TRITON_PADDED, sources.CPP_PADDED], ids=lambda k: k.language)
def test_a_padding_is_a_constant(kernel: Kernel) -> None:
    assert slices_of(kernel, "in_ptr0", "out_ptr0") == {"out_ptr0": ({"in_ptr0"}, {-1})}


@pytest.mark.parametrize("kernel", [sources.TRITON_SOFTMAX, sources.TRITON_ONLINE_SOFTMAX], ids=lambda k: k.name)
def test_the_initial_value_of_a_reduction_is_no_constant(kernel: Kernel) -> None:
    assert slices_of(kernel, "in_ptr0", "out_ptr2") == {"out_ptr2": ({"in_ptr0"}, set())}


def test_the_initial_value_of_a_cpp_reduction_is_no_constant() -> None:
    by_result = slices_of(sources.CPP_AMAX, "in_out_ptr0", "in_ptr0", "out_ptr0")
    assert by_result == {"in_out_ptr0": ({"in_ptr0"}, set()), "out_ptr0": ({"in_ptr0"}, set())}


def test_a_buffer_that_is_written_before_it_is_read_is_no_source() -> None:
    assert "in_out_ptr0" not in slices_of(sources.CPP_AMAX, "in_out_ptr0", "in_ptr0", "out_ptr0")["out_ptr0"][0]


def test_isnan_passes_no_value_on() -> None:
    by_result = slices_of(sources.TRITON_AMAX, "in_ptr0", "out_ptr0", "out_ptr1")
    assert by_result == {"out_ptr0": ({"in_ptr0"}, set()), "out_ptr1": (set(), set())}


def test_pointers_are_followed_through_variables() -> None:
    assert slices_of(sources.TRITON_USER, "x_ptr", "out_ptr") == {"out_ptr": ({"x_ptr"}, {-1})}


def test_a_negated_constant_explains_either_sign() -> None:
    body = 'tmp0 = tl.full([1], float("-inf"), tl.float32)\ntmp1 = -tmp0\ntl.store(out_ptr0 + (x0), tmp1, xmask)'
    assert slices_of(sources.triton("k", "out_ptr0", body), "out_ptr0")["out_ptr0"][1] == {1, -1}


def test_a_source_that_cannot_be_parsed_has_no_slices() -> None:
    assert slices_of(Kernel("k", "triton", "def k(:\n", "0" * 64), "out_ptr0") == {}
    assert slices_of(Kernel("k", "cpp", "void other(float* out_ptr0) { out_ptr0[0] = 1; }", "0" * 64), "out_ptr0") == {}


def test_a_local_buffer_is_memory() -> None:
    body = """
    std::unique_ptr<float []> buf_local_buffer_data_0 = std::make_unique<float []>(16L);
    float* local_buffer_data_0 = buf_local_buffer_data_0.get();
    auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(16));
    tmp0.store(local_buffer_data_0 + static_cast<int64_t>(x1));
    auto tmp1 = at::vec::Vectorized<float>::loadu(local_buffer_data_0 + static_cast<int64_t>(x1));
    tmp1.store(out_ptr0 + static_cast<int64_t>(x0));
"""
    kernel = sources.cpp("k", "const float* in_ptr0, float* out_ptr0", body)
    assert slices_of(kernel, "in_ptr0", "out_ptr0")["out_ptr0"] == ({"in_ptr0"}, set())
    assert all(statement.targets for statement in result_slices.statements(kernel, frozenset()))


def test_a_brace_in_a_comment_or_a_string_begins_no_block() -> None:
    body = """
    // for (x) {
    auto tmp0 = in_ptr0[0]; /* } */
    AOTI_TORCH_CHECK(tmp0 > 0, "no } here; nor {");
    out_ptr0[0] = tmp0;
"""
    kernel = sources.cpp("k", "const float* in_ptr0, float* out_ptr0", body)
    assert slices_of(kernel, "in_ptr0", "out_ptr0")["out_ptr0"] == ({"in_ptr0"}, set())


def test_a_parallel_region_is_a_block() -> None:
    """`#pragma omp parallel` without a number of threads, as where the package decides it when it runs."""
    source = (
        "void k(const float* in_ptr0, float* out_ptr0, float* out_ptr1)\n{\n    #pragma omp parallel\n    {\n"
        "        #pragma omp single\n        {\n"
        "            auto tmp0 = in_ptr0[0L];\n            out_ptr0[0L] = tmp0;\n        }\n    }\n"
        "    out_ptr1[0L] = 1;\n}\n"
    )
    found = result_slices.kernel_slices(
        Kernel("k", "cpp", source, "0" * 64), frozenset({"in_ptr0", "out_ptr0", "out_ptr1"})
    )
    assert found["out_ptr0"].sources == {"in_ptr0"}
    assert found["out_ptr1"].sources == frozenset()
