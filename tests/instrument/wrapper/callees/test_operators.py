from __future__ import annotations

import json
from typing import Any

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.instrument.wrapper.callees.operators import (
    Flat,
    declared_shims,
    mutated,
    operator_of,
    parse,
    proxy_targets,
    qualified,
    schema_of,
    shim_operators,
)
from aoti_debug.package.manifest import ProxyArgument
from tests.wrong_types import assert_refused

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


def node(target: str, inputs: dict[str, Any], *outputs: Any) -> str:
    entries = [{"name": name, "arg": arg, "kind": 1} for name, arg in inputs.items()]
    return json.dumps({"nodes": [{"name": "buf0", "node": {"target": target, "inputs": entries, "outputs": outputs}}]})


def test_arguments_are_flattened_as_the_call_passes_them() -> None:
    (parsed,) = parse(
        node(
            "mylib::op",
            {
                "x": {"as_tensor": {"name": "buf0"}},
                "xs": {"as_tensors": [{"name": "buf1"}, {"name": "buf2"}]},
                "maybe": {"as_optional_tensors": [{"as_none": True}, {"as_tensor": {"name": "buf3"}}]},
                "bias": {"as_none": True},
                "n": {"as_int": 3},
                "sizes": {"as_ints": [4, 5]},
                "s": {"as_sym_int": {"as_name": "s0"}},
                "factor": {"as_float": 1.5},
                "mode": {"as_string": "mul"},
            },
            {"as_tensor": {"name": "buf4"}},
            {"as_tensors": [{"name": "buf5"}]},
        )
    )
    assert parsed.inputs == (Flat("x", "buf0"), Flat("xs[0]", "buf1"), Flat("xs[1]", "buf2"), Flat("maybe[1]", "buf3"))
    assert parsed.outputs == (Flat("ret0", "buf4"), Flat("ret1[0]", "buf5"))
    assert parsed.numbers == (Flat("n"), Flat("sizes[0]"), Flat("sizes[1]"), Flat("s"))


def test_targets_are_named_once() -> None:
    text = json.dumps({"nodes": json.loads(node("a::f", {}))["nodes"] * 2})
    assert proxy_targets(text) == ("a::f",)
    assert proxy_targets("") == ()


@pytest.mark.parametrize("text", ["{", "[]", '{"nodes": [{}]}', '{"nodes": 3}', "[" * 200_000])
def test_damaged_lists_are_refused(text: str) -> None:
    with pytest.raises(ArtifactError, match="proxy operators"):
        parse(text)


@pytest.mark.parametrize(
    "arg", [{}, {"as_tensor": "buf0"}, {"as_tensors": [{"name": 3}]}, {"as_optional_tensor": {"as_tensor": [1]}}]
)
def test_damaged_arguments_are_refused(arg: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError, match="proxy operators"):
        parse(node("a::f", {"x": arg}))


def test_wrong_types_are_damage() -> None:
    data = json.loads(node("a::f", {"x": {"as_tensor": {"name": "buf0"}}}, {"as_tensor": {"name": "buf1"}}))
    assert_refused(lambda changed: parse(json.dumps(changed)), data, ArtifactError, unread=("nodes[0].name",))


def test_operands_and_results_are_kept_as_they_are() -> None:
    text = node("mylib::op", {"factor": {"as_float": 1.5}}, {"as_tensor": {"name": "buf4"}})
    text = text.replace('"kind": 1', '"kind": 2')
    (parsed,) = parse(text)
    assert parsed.operands == (ProxyArgument("factor", True, '{"as_float": 1.5}'),)
    assert parsed.results == ('{"as_tensor": {"name": "buf4"}}',)
