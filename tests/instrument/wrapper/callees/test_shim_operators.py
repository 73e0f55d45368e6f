from __future__ import annotations

import pytest

from aoti_debug.instrument.wrapper.callees.shim_operators import (
    declared_shims,
    mutated,
    operator_of,
    qualified,
    schema_of,
    shim_operators,
)

OPERATORS = shim_operators(["aten.addmm.out", "aten.convolution.default", "aten._flash_attention_forward.default"])


@pytest.mark.parametrize(
    ("callee", "operator"),
    [
        ("aoti_torch_cpu_addmm_out", "aten.addmm.out"),
        ("aoti_torch_cuda_convolution", "aten.convolution.default"),
        ("aoti_torch_cuda__flash_attention_forward_v2", "aten._flash_attention_forward.default"),
        ("aoti_torch_index_put_out", "aten.index_put.out"),
        ("aoti_torch_item_bool", "aten._local_scalar_dense.default"),
        ("aoti_torch_clone_preserve_strides", "aten.clone.default"),
        ("aoti_torch_cpu_unheard_of", ""),
        ("cpp_fused_relu_0", ""),
    ],
)
def test_the_operator_behind_a_shim(callee: str, operator: str) -> None:
    assert operator_of(callee, OPERATORS) == operator


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("f(Tensor(a!) x, Tensor y, int k=3) -> ()", {"x"}),
        ("f(Tensor(a0!)[] xs, Tensor(b!)? y, Tensor(c! -> *) z) -> Tensor(a!)", {"xs", "y", "z"}),
        ("f(Tensor(a) x) -> Tensor(a)", set()),
        ("f(Tensor x) -> Tensor", set()),
    ],
)
def test_mutated_parameters(schema: str, expected: set[str]) -> None:
    assert mutated(schema) == expected


def test_operators_are_qualified_with_their_overload() -> None:
    assert [qualified(t) for t in ("mylib::op", "aten::add.Tensor", "call_torchbind")] == [
        "mylib::op.default",
        "aten::add.Tensor",
        "call_torchbind",
    ]


@pytest.mark.parametrize("spelling", ["mylib::op.default", "mylib::op", "mylib.op.default", "mylib.op"])
@pytest.mark.parametrize("operator", ["mylib::op.default", "mylib.op.default"])
def test_schemas_are_found_under_every_spelling(operator: str, spelling: str) -> None:
    assert schema_of(operator, {spelling: "schema"}) == "schema"
    assert schema_of("mylib::op.out", {spelling: "schema"}) == ""


def test_shims_that_the_user_declared() -> None:
    declarations = {
        "mylib::op": ["AOTITorchError aoti_torch_cpu_op(AtenTensorHandle x)", "int aoti_torch_cuda_op (void*)"],
        "mylib.op.out": ["AOTITorchError any_name(AtenTensorHandle out)"],
    }
    shims = declared_shims(declarations)
    assert shims == {
        "aoti_torch_cpu_op": "mylib.op.default",
        "aoti_torch_cuda_op": "mylib.op.default",
        "any_name": "mylib.op.out",
    }
    assert operator_of("any_name", OPERATORS | shims) == "mylib.op.out"


@pytest.mark.parametrize(
    ("operators", "spellings"),
    [
        (("aten::f.x", "aten.f.x"), ("aten::f.x", "aten.f.x")),
        (("aten::f.default", "aten.f.default"), ("aten::f.default", "aten.f.default", "aten::f", "aten.f")),
    ],
)
def test_a_schema_is_found_under_every_spelling(operators: tuple[str, ...], spellings: tuple[str, ...]) -> None:
    for operator in operators:
        for spelling in spellings:
            assert schema_of(operator, {spelling: "f(Tensor x) -> Tensor", "aten::g": ""}) == "f(Tensor x) -> Tensor"
        assert schema_of(operator, {"aten::g": "g()"}) == ""
