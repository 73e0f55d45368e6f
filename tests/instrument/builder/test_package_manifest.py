from __future__ import annotations

import pytest

from aoti_debug.instrument.builder.package_manifest import _input_names, called_operators
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature
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


KEYWORDS = (
    '[1, {"type": "builtins.tuple", "context": "null", "children_spec": ['
    '{"type": "builtins.tuple", "context": "null", "children_spec": ['
    '{"type": null, "context": null, "children_spec": []}]}, '
    '{"type": "builtins.dict", "context": "[\\"index\\"]", "children_spec": ['
    '{"type": null, "context": null, "children_spec": []}]}]}]'
)


def tensors(*names: str, rank: int = 1) -> tuple[Leaf, ...]:
    return tuple(Leaf(name, "torch.int64", "cpu", (Dim(3, 3),) * rank) for name in names)


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (None, ("arg0_1", "index")),
        (ModelSignature(tensors("x", "ids")), ("x", "ids")),
        (ModelSignature(tensors("x", "ids", rank=2)), ("arg0_1", "index")),
    ],
)
def test_the_inputs_of_a_compiled_package_have_the_names_that_are_known(
    program: ModelSignature | None, names: tuple[str, ...]
) -> None:
    """Keywords, or the names in the program that it was compiled from."""
    variables = ("arg0_1", "arg1_1")
    assert _input_names(ModelSignature(tensors(*variables), KEYWORDS), program, variables) == names


def test_the_inputs_of_an_exported_program_keep_their_names() -> None:
    assert _input_names(ModelSignature(tensors("x", "ids"), KEYWORDS), None, ("arg0_1", "arg1_1")) == ("x", "ids")
    assert _input_names(ModelSignature(tensors("x")), None, ("arg0_1", "arg1_1")) == ()
