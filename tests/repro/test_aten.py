"""From the C shim's parameters to the operator's schema."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import UsageError
from aoti_debug.package.argument_values import Absent
from aoti_debug.package.manifest import CType, Form, Kind, OperatorSchema, Parameter, Role
from aoti_debug.repro import aten
from aoti_debug.repro.arguments import arguments_of
from aoti_debug.repro.generate_texts import kind_of
from aoti_debug.repro.script import Script
from tests.operator_schemas import registered
from tests.repro.repro_launches import LaunchBuilder, manifest


def script(launch: LaunchBuilder, signature: OperatorSchema | None = None) -> Script:
    built = launch.build()
    if signature is None:
        return aten.script(built, manifest(operators=registered(built.site.op)), arguments_of(built))
    return aten.script_for(signature, built, arguments_of(built))


def shim(tmp_path: Path, op: str, callee: str = "aoti_torch_cpu_x", kind: Kind = Kind.SHIM_ALLOC) -> LaunchBuilder:
    return LaunchBuilder(tmp_path, callee, kind, op)


def test_an_older_version_of_a_c_function_has_fewer_parameters(tmp_path: Path) -> None:
    parameters = (Parameter("self", "Tensor"), Parameter("k", "int"), Parameter("sorted", "bool", since=2))
    known = manifest(operators=[OperatorSchema("aten.f.default", parameters, returns=1)])

    def call(version: str, *sorted_: int) -> str:
        launch = shim(tmp_path, "aten.f.default", f"aoti_torch_cpu_f{version}").tensor("a", torch.zeros(2))
        launch.number("k", 3)
        for value in sorted_:
            launch.number("sorted", value, CType.I32)
        built = launch.result("b", torch.zeros(2)).build()
        return aten.script(built, known, arguments_of(built)).launch[0]

    assert call("") == "b = torch.ops.aten.f.default(a, k=3)"
    assert call("_v2", 1) == "b = torch.ops.aten.f.default(a, k=3, sorted=True)"


def test_a_package_without_the_schema_of_the_operator_is_refused(tmp_path: Path) -> None:
    launch = shim(tmp_path, "aten.addmm.out", "aoti_torch_cpu_addmm_out", Kind.SHIM_OUT).build()
    with pytest.raises(UsageError, match=r"does not hold the schema of aten\.addmm\.out; build it again"):
        kind_of(launch, manifest())
    assert kind_of(launch, manifest(operators=registered("aten.addmm.out"))) is aten


def test_numbers_have_the_type_that_the_c_function_gives_them(tmp_path: Path) -> None:
    launch = shim(tmp_path, "aten.topk.default")
    launch.tensor("buf1", torch.zeros(4)).number("k", 3).number("dim", -1).number("largest", 1, CType.I32)
    launch.number("sorted", 0, CType.I32).result("buf2", torch.zeros(3)).result("buf3", torch.zeros(3), "ret1")
    assert script(launch).launch == (
        "buf2, buf3 = torch.ops.aten.topk.default(buf1, k=3, dim=-1, largest=True, sorted=False)",
    )


def test_a_scalar_is_a_double_in_c(tmp_path: Path) -> None:
    launch = shim(tmp_path, "aten.mul.Scalar").tensor("buf1", torch.zeros(2)).number("other", 2, ctype="double")
    assert script(launch.result("buf2", torch.zeros(2))).launch == (
        "buf2 = torch.ops.aten.mul.Scalar(buf1, other=2.0)",
    )


def test_a_result_that_the_model_does_not_take(tmp_path: Path) -> None:
    launch = shim(tmp_path, "aten.sort.default").tensor("buf1", torch.zeros(4)).number("dim", 0)
    launch.number("descending", 0, CType.I32).absent("ret0", Form.OUTPUT_SLOT).result("buf3", torch.zeros(4), "ret1")
    made = script(launch)
    assert made.launch == ("_, buf3 = torch.ops.aten.sort.default(buf1, dim=0, descending=False)",)
    assert made.made == ("buf3",)


def test_a_null_pointer_without_a_slot_is_none(tmp_path: Path) -> None:
    launch = shim(tmp_path, "aten.searchsorted.Tensor").tensor("a", torch.zeros(4)).tensor("b", torch.zeros(2))
    launch.number("out_int32", 0, CType.I32).number("right", 1, CType.I32).skip()
    launch.tensor("c", torch.zeros(4, dtype=torch.int64), form=Form.OPTIONAL).result("buf3", torch.zeros(2))
    assert script(launch).launch == (
        "buf3 = torch.ops.aten.searchsorted.Tensor(a, b, out_int32=False, right=True, side=None, sorter=c)",
    )


def test_dtypes_layouts_formats_and_devices(tmp_path: Path) -> None:
    launch = shim(tmp_path, "aten.full.default").ints("size", (2,)).number("fill_value", float("inf"), CType.F64)
    launch.number("dtype", 15, CType.I32, form=Form.SCALAR_REF).number("layout", 0, CType.I32, form=Form.SCALAR_REF)
    launch.number("device", 1, CType.I32, form=Form.SCALAR_REF).number("device_index_", 2, CType.I32)
    launch.absent("pin_memory", Form.SCALAR_REF).result("buf1", torch.zeros(2))
    written = script(launch)
    (line,) = written.launch
    assert written.imports == ("from replay.memory import available_device",)
    assert line.split("\n")[1:-1] == [
        "        size=[2],",
        '        fill_value=float("inf"),',
        "        dtype=torch.bfloat16,",
        "        layout=torch.strided,",
        '        device=torch.device(available_device("cuda:2")),',
        "        pin_memory=None,",
    ]
    copy = shim(tmp_path, "aten.clone.default").tensor("a", torch.zeros(2)).number("memory_format", 2, CType.I32)
    assert script(copy).launch == ("torch.ops.aten.clone.default(a, memory_format=torch.channels_last)",)


def test_parameters_named_like_python_keywords(tmp_path: Path) -> None:
    signature = OperatorSchema(
        "aten.uniform.default",
        (Parameter("self", "Tensor"), Parameter("from", "float"), Parameter("to", "float"), Parameter("in", "int")),
        returns=1,
        random=True,
    )
    launch = shim(tmp_path, signature.op).tensor("a", torch.zeros(2)).number("from", 0.0, CType.F64)
    launch.number("to", 1.0, CType.F64).number("in", 3).result("buf1", torch.zeros(2))
    assert script(launch, signature).launch == ('buf1 = torch.ops.aten.uniform.default(a, 0.0, to=1.0, **{"in": 3})',)


def test_dropout_of_nothing_is_not_random(tmp_path: Path) -> None:
    def attention(p: float) -> str:
        launch = shim(tmp_path, "x").tensor("q", torch.zeros(2)).number("dropout_p", p, CType.F64)
        parameters = (Parameter("query", "Tensor"), Parameter("dropout_p", "float"))
        return script(launch, OperatorSchema("aten.attention.default", parameters, 1, random=True)).random

    assert attention(0.0) == ""
    assert attention(0.1) == "aten.attention.default draws random numbers"


@pytest.mark.parametrize(
    ("parameter", "value", "said"),
    [
        (Parameter("k", "int"), Absent.NULL, "k is None"),
        (Parameter("k", "int"), Absent.OPAQUE, "k is not a number"),
        (Parameter("k", "Tensor"), Absent.OPAQUE, "k is not a tensor"),
        (Parameter("k", "str"), Absent.TEXT, "is not a string literal"),
        (Parameter("k", "Stream"), Absent.OPAQUE, "k is not a number"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(tmp_path: Path, parameter: Parameter, value: Absent, said: str) -> None:
    launch = shim(tmp_path, "aten.f.default").absent("k", Form.SCALAR, value=value, text="&var_0")
    with pytest.raises(UsageError, match=said):
        script(launch, OperatorSchema("aten.f.default", (parameter,), 1))


def test_an_argument_that_was_not_recorded_is_refused(tmp_path: Path) -> None:
    launch = shim(tmp_path, "aten.f.default").skip()
    with pytest.raises(UsageError, match=r"its argument k was not recorded"):
        script(launch, OperatorSchema("aten.f.default", (Parameter("k", "int"),), 1))


def test_a_list_with_a_hole_is_refused(tmp_path: Path) -> None:
    launch = shim(tmp_path, "aten.f.default").number("d[1]", 4, form=Form.INTS, element=1).number("d_len_", 2)
    with pytest.raises(UsageError, match="1 of the 2 elements of its argument d were recorded"):
        script(launch, OperatorSchema("aten.f.default", (Parameter("d", "List[int]"),), 1))


def test_more_results_than_the_operator_has(tmp_path: Path) -> None:
    launch = shim(tmp_path, "aten.f.default").tensor("a", torch.zeros(1)).result("b", torch.zeros(1))
    with pytest.raises(UsageError, match="returns 0 values and the model uses 1"):
        script(launch, OperatorSchema("aten.f.default", (Parameter("self", "Tensor"),), 0))


def test_an_operator_nobody_knows_is_refused(tmp_path: Path) -> None:
    launch = shim(tmp_path, "", callee="aoti_torch_cpu_new").tensor("a", torch.zeros(1), Role.OUT).build()
    assert aten.refusal(launch, manifest()) == "the operator behind aoti_torch_cpu_new is not known"
