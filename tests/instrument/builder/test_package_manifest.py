from __future__ import annotations

from aoti_debug.instrument.builder.package_manifest import _input_names, called_operators
from aoti_debug.package.inputs.signature import Leaf, ModelSignature
from aoti_debug.package.manifest import Kind, OperatorSchema
from tests.factories import site


def schema(op: str) -> OperatorSchema:
    return OperatorSchema(op, (), returns=1)


def test_the_schemas_of_the_operators_that_sites_call() -> None:
    known = {op: schema(op) for op in ("aten.addmm.out", "aten.mm.out", "mylib.op.default")}
    sites = (
        site("mylib::op.default", kind=Kind.PROXY, op="mylib::op.default"),
        site("mylib::other.default", kind=Kind.PROXY, op="mylib::other.default"),
        site("aoti_torch_cpu_addmm_out", op="aten.addmm.out"),
        site("aoti_torch_cpu_addmm_out", op="aten.addmm.out"),
        site("cpp_fused_relu_0", kind=Kind.CPP),
    )
    assert called_operators(sites, known) == (schema("aten.addmm.out"), schema("mylib.op.default"))


def test_the_inputs_have_the_names_of_the_signature_or_else_of_their_variables() -> None:
    leaves = (Leaf("x", "torch.int64"), Leaf("n", constant="2"), Leaf("", "torch.int64"))
    assert _input_names(ModelSignature(leaves), ("arg0_1", "arg1_1")) == ("x", "arg1_1")
    assert _input_names(ModelSignature(leaves[:1]), ("arg0_1", "arg1_1")) == ()
