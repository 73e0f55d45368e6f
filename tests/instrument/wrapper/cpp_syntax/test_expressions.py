from __future__ import annotations

import pytest

from aoti_debug.instrument.wrapper.cpp_syntax import expressions
from aoti_debug.instrument.wrapper.cpp_syntax.expressions import Pointer, TensorExpression

VIEW = "wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(l_weight, 2, int_array_2, int_array_3, 0L))"


@pytest.mark.parametrize(
    ("text", "name", "variable"),
    [
        ("buf0", "buf0", "buf0"),
        ("workspace_0.get()", "workspace_0", "workspace_0"),
        ("&buf3_handle", "buf3", "buf3"),
        ("&output_handles[2]", "output2", "output2"),
        ("&arg0_1_aligned", "arg0_1_aligned", "arg0_1_aligned"),
        ("&temporary_reference(buf6.get())", "buf6", "buf6"),
        (VIEW, "l_weight_view", "l_weight"),
        (f"&temporary_reference({VIEW}.get())", "l_weight_view", "l_weight"),
        ("RAIIAtenTensorHandle(tmp_buf4_7)", "tmp_buf4_7_view", "tmp_buf4_7"),
    ],
)
def test_tensors(text: str, name: str, variable: str) -> None:
    expression = expressions.tensor(text)
    assert expression is not None
    assert (expression.name, expression.variable) == (name, variable)


@pytest.mark.parametrize(
    "text", ["nullptr", "NULL", "1L", '"mean"', "f(buf0)", "b ? buf0 : buf1", "buf0.get() + 1", "*x"]
)
def test_null_numbers_and_expressions_of_another_form_are_no_tensors(text: str) -> None:
    assert expressions.tensor(text) is None


def test_two_views_of_one_buffer_have_different_keys() -> None:
    first, second = expressions.tensor(VIEW), expressions.tensor(VIEW.replace("0L", "8L"))
    assert first is not None
    assert second is not None
    assert (first.name, first.key == second.key) == (second.name, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(const float*)(buf2.data_ptr())", Pointer("const float*", TensorExpression("buf2", False, "buf2"), "buf2")),
        ("(at::BFloat16*)(buf1.data_ptr())", Pointer("at::BFloat16*", TensorExpression("buf1", False, "buf1"), "buf1")),
        (
            "(c10::complex<float>*)(b.data_ptr())",
            Pointer("c10::complex<float>*", TensorExpression("b", False, "b"), "b"),
        ),
        (
            "(const void*)arg0_1.data_ptr()",
            Pointer("const void*", TensorExpression("arg0_1", False, "arg0_1"), "arg0_1"),
        ),
        ("(size_t*)nullptr", Pointer("size_t*", None, "nullptr")),
        ("(int)64", None),
        ("s77", None),
        ("(a*)(b)", Pointer("a*", None, "")),
        ("(float*)(b.data_ptr()) + 16", Pointer("float*", None, "")),
    ],
)
def test_pointers(text: str, expected: Pointer | None) -> None:
    assert expressions.pointer(text) == expected


def test_casts() -> None:
    assert expressions.cast("(int)s77") == ("int", "s77")
    assert expressions.cast("(const int)64L") == ("const int", "64L")
    assert expressions.cast("s77 + (int)u0") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("std::array<int64_t, 2>{1L, s77}.cbegin()", ("1L", "s77")),
        ("std::array<int64_t, 0>{}.data()", ()),
        ("static_cast<const int64_t*>(std::array<int64_t, 2>{1L, s77}.data())", ("1L", "s77")),
        ("f(std::array<int64_t, 2>{1L, s77}.data())", None),
        ("std::array<int64_t, 2>{1L, s77}.data() + 1", None),
        (f"std::array<AtenTensorHandle, 2>{{nullptr, {VIEW}}}.cbegin()", ("nullptr", VIEW)),
        ("nullptr", None),
        ("int_array_2", None),
        ("std::array<int64_t, 2>::value", None),
    ],
)
def test_elements_of_arrays(text: str, expected: tuple[str, ...] | None) -> None:
    assert expressions.elements(text) == expected


def test_variables() -> None:
    assert [expressions.variable(text) for text in ("s77", "&var_0", "2L*s77", "&f(x)")] == ["s77", "var_0", "", ""]
