from __future__ import annotations

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.instrument.wrapper.cpp_syntax.functions import device_of, entry_points, triton_functions
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
