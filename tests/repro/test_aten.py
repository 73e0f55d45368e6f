"""From the C shim's parameters to the operator's schema."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from repro_launches import LaunchBuilder, manifest

from aoti_debug.errors import UsageError
from aoti_debug.manifest import CType, Form, Kind, Role
from aoti_debug.repro import aten
from aoti_debug.repro.arguments import arguments_of
from aoti_debug.repro.schema import OperatorSchema, Parameter, registered_schema
from aoti_debug.repro.script import Script
from aoti_debug.values import Absent


def script(launch: LaunchBuilder, signature: OperatorSchema | None = None) -> Script:
    built = launch.build()
    if signature is None:
        return aten.script(built, manifest(), arguments_of(built))
    return aten.script_for(signature, built, arguments_of(built))


def shim(tmp_path: Path, op: str, callee: str = "aoti_torch_cpu_x", kind: Kind = Kind.SHIM_ALLOC) -> LaunchBuilder:
    return LaunchBuilder(tmp_path, callee, kind, op)


def test_outputs_come_first_in_c() -> None:
    signature = registered_schema("aten.addmm.out", "aoti_torch_cpu_addmm_out")
    assert [(at, p.name) for at, p in signature.in_c()] == [
        (0, "out"),
        (1, "self"),
        (2, "mat1"),
        (3, "mat2"),
        (4, "beta"),
        (5, "alpha"),
    ]
    assert (signature.returns, signature.random) == (0, False)


def test_lists_and_devices_take_two_parameters() -> None:
    signature = registered_schema("aten.rand.default", "aoti_torch_cpu_rand")
    assert [(at, p.name) for at, p in signature.in_c()] == [
        (0, "size"),
        (2, "dtype"),
        (3, "layout"),
        (4, "device"),
        (6, "pin_memory"),
    ]
    assert (signature.width, signature.returns, signature.random) == (7, 1, True)


def test_in_place_operators_return_nothing_in_c() -> None:
    assert registered_schema("aten.bernoulli_.float", "aoti_torch_cpu_bernoulli__float").returns == 0
    assert registered_schema("aten.zero_.default", "aoti_torch_zero_").returns == 0


def test_an_older_version_of_a_c_function_has_fewer_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchgen.aoti import fallback_ops

    monkeypatch.setitem(fallback_ops.inductor_fallback_ops, "aten.topk.default", {"v2": {"new_args": ["sorted"]}})
    names = [p.name for p in registered_schema("aten.topk.default", "aoti_torch_cpu_topk").parameters]
    assert names == ["self", "k", "dim", "largest"]
    assert len(registered_schema("aten.topk.default", "aoti_torch_cpu_topk_v2").parameters) == 5


def test_an_operator_that_this_torch_has_not() -> None:
    with pytest.raises(UsageError, match=r"has no operator aten\.no_such\.default"):
        registered_schema("aten.no_such.default", "aoti_torch_cpu_no_such")


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
    assert written.imports == ("from replay.devices import available_device",)
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
