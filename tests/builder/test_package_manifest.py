from __future__ import annotations

from factories import site

from aoti_debug.builder.package_manifest import called_operators
from aoti_debug.manifest import Kind, OperatorSchema


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
