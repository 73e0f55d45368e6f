from __future__ import annotations

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.instrument.wrapper.cpp_syntax.functions import (
    Variables,
    device_of,
    entry_points,
    triton_functions,
    variables,
)
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import mask
from tests.instrument.wrapper import texts

WRAPPER = """
namespace torch::aot_inductor {
void AOTInductorModel::_const_run_impl(
    std::vector<AtenTensorHandle>& output_handles
) {}

// void AOTInductorModel::run_impl( in a comment
void AOTInductorModel_part::run_impl(
    AtenTensorHandle* input_handles, // handles } are stolen
    DeviceStreamType stream
) {
    if (x) { f("}"); }
} // AOTInductorModel::run_impl
} // namespace torch::aot_inductor
"""


def test_entry_points_are_found_whatever_the_class_is_called() -> None:
    const, run = entry_points(mask(WRAPPER))
    assert (const.name, run.name) == ("_const_run_impl", "run_impl")
    assert WRAPPER[const.opening : const.closing + 1] == "{}"
    assert WRAPPER[run.opening : run.closing + 1] == '{\n    if (x) { f("}"); }\n}'
    assert WRAPPER[run.parameters] == "("


@pytest.mark.parametrize(
    "line",
    [
        "auto* var_1 = get_data_ptr_wrapper(buf2);",
        "ArrayRefTensor<float> buf2(buf2_storage);",
        "run_impl_minimal_arrayref_interface<A, B>(x);",
    ],
)
def test_array_ref_wrappers_are_refused(line: str) -> None:
    with pytest.raises(ArtifactError, match="ArrayRef") as raised:
        entry_points(mask(WRAPPER.replace("if (x)", f"{line} if (x)")))
    assert "allow_stack_allocation" in raised.value.hint


@pytest.mark.parametrize("line", ["AOTICUDAGraphManager graphs;", "aoti_torch_cuda_graph_replay(graph_);"])
def test_a_wrapper_that_captures_itself_in_cuda_graphs_is_refused(line: str) -> None:
    with pytest.raises(ArtifactError, match="captures itself in CUDA graphs") as raised:
        entry_points(mask(WRAPPER.replace("if (x)", f"{line} if (x)")))
    assert raised.value.hint == "lower it with aot_inductor.cudagraph_mode=off"


def test_a_wrapper_without_run_impl_is_refused() -> None:
    with pytest.raises(ArtifactError, match="no AOTInductorModel::run_impl"):
        entry_points(mask("void AOTInductorModel::start() {}"))


def test_triton_functions_of_both_styles() -> None:
    text = (
        "template <typename k_>\nstatic inline void call_a_0(\n    const k_& k\n){\n    f();\n}\n"
        "template <typename k_>\n"
        "static __attribute__((noinline)) void call_b_1(\n    const k_& k = {}\n){\n    g();\n}\n"
        "void h() { call_a_0(k); }\n"
    )
    bodies = triton_functions(mask(text))
    assert [(b.name, text[b.opening + 1 : b.closing].strip()) for b in bodies] == [
        ("call_a_0", "f();"),
        ("call_b_1", "g();"),
    ]


def test_devices() -> None:
    assert (device_of(texts.text("cuda")), device_of(texts.text("mixed")), device_of("")) == ("cuda", "cpu", "cpu")


VIEW = "wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper({}, 2, a, b, 0L))"


def read(*lines: str) -> Variables:
    masked = written(*lines)
    (body,) = entry_points(masked)
    return variables(masked, body)


def written(*lines: str) -> str:
    """The masked text of a wrapper."""
    return mask("void AOTInductorModel::run_impl(int x) {\n" + "\n".join(lines) + "\n}\n")


def test_types_of_numbers() -> None:
    declared = read("int32_t var_0 = 1;", "int64_t u0_raw;", "double var_1 = 0.5;", "auto buf5_2 = 36L*s0;")
    assert declared.types == {"var_0": "int32_t", "u0_raw": "int64_t", "var_1": "double", "buf5_2": "auto"}


def test_views_and_handles_have_bases() -> None:
    declared = read(
        f"auto buf19 = {VIEW.format('buf22')};  // alias",
        "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out(arg5_1, &true_graph_0_arg0_1_handle));",
        f"aoti_torch_assign_tensors_out({VIEW.format('buf3')}, &true_graph_0_arg1_1_handle);",
        "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_view_dtype(buf4, cached_torch_dtype_int32, &tmp_buf4_7));",
    )
    assert declared.bases == {
        "buf19": "buf22",
        "true_graph_0_arg0_1": "arg5_1",
        "true_graph_0_arg1_1": "buf3",
        "tmp_buf4_7": "buf4",
    }


def test_a_buffer_that_takes_another_over_is_its_own() -> None:
    declared = read(
        f"auto buf7 = {VIEW.format('buf0')}; buf0.reset();  // reuse", "auto buf8 = std::move(buf1);  // reuse"
    )
    assert declared.bases == {}


def test_a_handle_that_a_loop_carries_on_is_its_own() -> None:
    declared = read(
        "aoti_torch_assign_tensors_out(buf5, &buf7_handle);", "while (1) {", "buf7 = std::move(body_buf3);", "}"
    )
    assert declared.bases == {}
    assert "buf7" in declared.initialised


def test_initialised_tensors() -> None:
    declared = read(
        "auto arg0_1 = std::move(inputs[0]);",
        "[[maybe_unused]] auto& weight = constants_->at(0);",
        "AtenTensorHandle buf2_handle;  // output buffer",
        "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_uninitialized_tensor(&buf2_handle));",
        "RAIIAtenTensorHandle buf2(buf2_handle);",
        "RAIIAtenTensorHandle scalar_to_tensor_0 = scalar_to_tensor_handle(2L);",
    )
    assert (declared.initialised, declared.uninitialised) == (frozenset({"arg0_1", "weight"}), frozenset({"buf2"}))
    assert declared.tensors == {"arg0_1", "weight", "buf2", "scalar_to_tensor_0"}


EMPTY = "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, sizes, strides, 6, 0, 0, &{0}_handle));"
OWNED = EMPTY + " RAIIAtenTensorHandle {0}({0}_handle);"


def test_the_first_use_of_memory_that_is_not_filled() -> None:
    lines = (
        OWNED.format("buf0"),
        "auto buf1 = std::move(buf0);  // reuse",
        OWNED.format("buf2"),
        "kernel((float*)(buf1.data_ptr()), (float*)(buf2.data_ptr()));",
        "auto buf3 = std::move(buf2);  // reuse",
        "other((float*)(buf3.data_ptr()), (float*)(buf1.data_ptr()));",
    )
    text, found = written(*lines), read(*lines).first_uses
    assert {name: text[at:].partition(")")[0] for name, at in found.items()} == {
        "buf0": "buf0",
        "buf1": "buf1.data_ptr(",
        "buf2": "buf2.data_ptr(",
    }
    assert text[: found["buf1"]].rpartition("\n")[2].startswith("kernel(")


def test_a_result_of_a_branch_is_initialised() -> None:
    declared = read("RAIIAtenTensorHandle buf4;", "if (c) {", "buf4 = std::move(true_graph_0_buf1);", "}")
    assert declared.initialised == {"buf4"}


def test_a_second_handle_of_a_buffer_does_not_fill_it() -> None:
    declared = read("aoti_torch_new_tensor_handle(buf1, &tmp_buf1_0);")
    assert (declared.initialised, declared.bases) == (frozenset(), {"tmp_buf1_0": "buf1"})


def test_a_tensor_that_is_only_freed_and_checked_is_not_used() -> None:
    lines = (
        "AtenTensorHandle buf0_handle;",
        "AtenTensorHandle buf1_handle;",
        "call(x, &buf0_handle, &buf1_handle);",
        "RAIIAtenTensorHandle buf0(buf0_handle);",
        "RAIIAtenTensorHandle buf1(buf1_handle);",
        "assert_size_stride(buf1, {2L}, {1L}, 'call');",
        "kernel((float*)(buf0.data_ptr()));",
        "buf1.reset();",
        "buf0.reset();",
    )
    text, found = written(*lines), read(*lines).last_uses
    assert text[found["buf0"] :].startswith("buf0.data_ptr()")
    assert text[: found["buf1"]].endswith("&buf0_handle, &")
