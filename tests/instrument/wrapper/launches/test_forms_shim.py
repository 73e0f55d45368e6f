"""Calls of C-shim functions that no header declares: of what they do with their tensors nothing is claimed."""

from __future__ import annotations

import pytest

from aoti_debug.instrument.wrapper.analysis import analyse
from aoti_debug.package.manifest import CType, Form, Role

WRAPPER = """namespace torch::aot_inductor {{
void AOTInductorModel::run_impl(AtenTensorHandle* input_handles, AtenTensorHandle* output_handles) {{
    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, 1);
    auto arg0_1 = std::move(inputs[0]);
    int64_t count = 3;
    AtenTensorHandle buf0_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_made_up({}));
    RAIIAtenTensorHandle buf0(buf0_handle);
}}
}} // namespace torch::aot_inductor
"""


@pytest.mark.parametrize(
    ("argument", "form", "role", "ctype"),
    [
        ("arg0_1", Form.TENSOR, Role.UNKNOWN, "AtenTensorHandle"),
        ("&buf0_handle", Form.OUTPUT_SLOT, Role.OUT, "AtenTensorHandle*"),
        ("&temporary_reference(arg0_1.get())", Form.OPTIONAL, Role.UNKNOWN, "AtenTensorHandle*"),
        ("&count", Form.SCALAR_REF, Role.NONE, "void*"),
        ("3L", Form.SCALAR, Role.NONE, "int64_t"),
        ("-3", Form.SCALAR, Role.NONE, "int64_t"),
        ("0.5", Form.SCALAR, Role.NONE, "double"),
        ("-.5", Form.SCALAR, Role.NONE, "double"),
        ('"sum"', Form.STRING, Role.NONE, "const char*"),
        ("std::array<int64_t, 2>{3L, 4L}.data()", Form.INTS, Role.NONE, "const int64_t*"),
        ("std::array<AtenTensorHandle, 1>{arg0_1}.data()", Form.LIST, Role.UNKNOWN, "const AtenTensorHandle*"),
    ],
)
def test_a_parameter_that_is_guessed_from_its_argument(argument: str, form: Form, role: Role, ctype: str) -> None:
    (site,) = analyse(WRAPPER.format(f"arg0_1, {argument}")).sites
    guessed = next(a for a in reversed(site.args) if a.value == 1)
    assert (guessed.form, guessed.role, guessed.ctype) == (form, role, ctype)
    assert guessed.referent is (CType.I64 if argument == "&count" else CType.NONE)


def test_a_null_pointer_of_unknown_type_is_left_out() -> None:
    (site,) = analyse(WRAPPER.format("arg0_1, nullptr")).sites
    assert [a.name for a in site.args] == ["arg0_1"]


@pytest.mark.parametrize("argument", ["unknown", "unknown_handle", "f(x)"])
def test_a_call_with_an_argument_of_unknown_kind_is_reported(argument: str) -> None:
    found = analyse(WRAPPER.format(f"arg0_1, {argument}"))
    assert (found.sites, [call.line for call in found.unrecognised]) == ((), [7])
