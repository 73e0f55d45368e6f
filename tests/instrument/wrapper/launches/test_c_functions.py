from __future__ import annotations

import json
from typing import Any

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.instrument.wrapper.launches.c_functions import (
    Flat,
    Param,
    Prototype,
    declared_shims,
    form_of,
    is_output,
    mutated,
    number_type,
    operator_of,
    parse_externs,
    parse_prototypes,
    parse_proxy,
    proxy_targets,
    qualified,
    schema_of,
    shim_operators,
)
from aoti_debug.package.manifest import CType, Form, ProxyArgument
from tests.wrong_types import assert_refused

HEADER = """
// AOTITorchError aoti_torch_commented(int32_t x);
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_cpu_cat(const AtenTensorHandle* tensors, int64_t tensors_len_,
    int64_t dim, AtenTensorHandle* ret0);
AOTI_TORCH_EXPORT AOTITorchError
aoti_torch_clone(AtenTensorHandle self, AtenTensorHandle* ret /* new reference */);
AOTI_TORCH_EXPORT void aoti_torch_print_tensor_handle(AtenTensorHandle self, const char* msg);
AOTI_TORCH_EXPORT int32_t aoti_torch_dtype_float32();
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_library_impl(const char* name, void (*fn)(uint64_t*, uint64_t));
"""

WRAPPER = """
extern "C"  void  cpp_fused_relu_1(const float* in_ptr0,
                       at::BFloat16* out_ptr0,
                       const int64_t ks0);
extern "C" {
    extern AOTITorchError aoti_torch_cpu_shimmed(AtenTensorHandle, double, AtenTensorHandle*);
}
extern "C" int cuda_fused_mm_0(const float* X, const int M, size_t* workspace_size);
static inline void launchKernel(CUfunction func, uint32_t gridX) { }
AOTIRuntimeError AOTInductorModelDelete(AOTInductorModelHandle model_handle) { }
"""


def test_a_header_is_read() -> None:
    prototypes = parse_prototypes(HEADER)
    assert set(prototypes) == {"aoti_torch_cpu_cat", "aoti_torch_clone", "aoti_torch_print_tensor_handle"}
    assert prototypes["aoti_torch_cpu_cat"].params == (
        Param("const AtenTensorHandle*", "tensors"),
        Param("int64_t", "tensors_len_"),
        Param("int64_t", "dim"),
        Param("AtenTensorHandle*", "ret0"),
    )


def test_only_extern_functions_of_a_wrapper_are_read() -> None:
    prototypes = parse_externs(WRAPPER)
    assert prototypes == {
        "cpp_fused_relu_1": Prototype(
            "cpp_fused_relu_1",
            (Param("const float*", "in_ptr0"), Param("at::BFloat16*", "out_ptr0"), Param("const int64_t", "ks0")),
        ),
        "aoti_torch_cpu_shimmed": Prototype(
            "aoti_torch_cpu_shimmed",
            (Param("AtenTensorHandle", ""), Param("double", ""), Param("AtenTensorHandle*", "")),
        ),
        "cuda_fused_mm_0": Prototype(
            "cuda_fused_mm_0", (Param("const float*", "X"), Param("const int", "M"), Param("size_t*", "workspace_size"))
        ),
    }


@pytest.mark.parametrize(
    ("ctype", "name", "form"),
    [
        ("AtenTensorHandle", "self", Form.TENSOR),
        ("const AtenTensorHandle", "values", Form.TENSOR),
        ("AtenTensorHandle*", "ret0", Form.OUTPUT_SLOT),
        ("AtenTensorHandle*", "ret_new_tensor", Form.OUTPUT_SLOT),
        ("AtenTensorHandle*", "out", Form.OUTPUT_SLOT),
        ("AtenTensorHandle*", "bias", Form.OPTIONAL),
        ("const AtenTensorHandle*", "tensors", Form.LIST),
        ("const AtenTensorHandle**", "indices", Form.OPTIONAL_LIST),
        ("const int64_t*", "stride", Form.INTS),
        ("const int32_t*", "output_mask", Form.OPAQUE),
        ("const int64_t**", "bias_sizes", Form.OPAQUE),
        ("const double**", "scalars", Form.OPAQUE),
        ("const char*", "reduce", Form.STRING),
        ("const char**", "side", Form.OPAQUE),
        ("int32_t", "transposed", Form.SCALAR),
        ("int32_t*", "stable", Form.SCALAR_REF),
        ("int64_t*", "ret4", Form.SCALAR_REF),
        ("AtenGeneratorHandle*", "generator", Form.OPAQUE),
    ],
)
def test_forms(ctype: str, name: str, form: Form) -> None:
    assert form_of(Param(ctype, name)) is form


@pytest.mark.parametrize(
    ("param", "expected"),
    [
        (Param("int64_t*", "ret4"), True),
        (Param("bool*", "ret_value"), True),
        (Param("int32_t*", "stable"), False),
        (Param("const int64_t*", "ret"), False),
        (Param("int64_t", "ret"), False),
    ],
)
def test_outputs_are_recognised_by_their_name(param: Param, expected: bool) -> None:
    assert is_output(param) is expected


def test_number_types() -> None:
    assert [number_type(t) for t in ("const int64_t", "double", "bool", "AtenTensorHandle")] == [
        CType.I64,
        CType.F64,
        CType.BOOL,
        CType.NONE,
    ]


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
    (parsed,) = parse_proxy(
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
        parse_proxy(text)


@pytest.mark.parametrize(
    "arg", [{}, {"as_tensor": "buf0"}, {"as_tensors": [{"name": 3}]}, {"as_optional_tensor": {"as_tensor": [1]}}]
)
def test_damaged_arguments_are_refused(arg: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError, match="proxy operators"):
        parse_proxy(node("a::f", {"x": arg}))


def test_wrong_types_are_damage() -> None:
    data = json.loads(node("a::f", {"x": {"as_tensor": {"name": "buf0"}}}, {"as_tensor": {"name": "buf1"}}))
    assert_refused(lambda changed: parse_proxy(json.dumps(changed)), data, ArtifactError, unread=("nodes[0].name",))


def test_operands_and_results_are_kept_as_they_are() -> None:
    text = node("mylib::op", {"factor": {"as_float": 1.5}}, {"as_tensor": {"name": "buf4"}})
    text = text.replace('"kind": 1', '"kind": 2')
    (parsed,) = parse_proxy(text)
    assert parsed.operands == (ProxyArgument("factor", True, '{"as_float": 1.5}'),)
    assert parsed.results == ('{"as_tensor": {"name": "buf4"}}',)
