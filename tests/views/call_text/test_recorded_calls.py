from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.package.argument_values import Number, Value
from aoti_debug.package.manifest import CType, Form, OperatorSchema, Parameter, ProxyArgument, Role
from aoti_debug.runs.rundir.launch import Argument
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.call_text.recorded_calls import RecordedCalls, argument_texts, operator_name
from tests.factories import arg, site, tensor
from tests.runs.show.recorded import level_2, replayed


def words(run: RunDir) -> list[str]:
    calls = RecordedCalls(run, None, None, hashes=False).calls(run.launches, {launch.key for launch in run.launches})
    return [str(call) for call in calls]


def test_a_launch_names_the_replay_that_measured_it(tmp_path: Path) -> None:
    assert [line.rpartition("# ")[2] for line in words(replayed(tmp_path))] == ["0.0, replay 8", "0.1, replay 8"]


def test_a_launch_that_no_replay_measured(tmp_path: Path) -> None:
    assert [line.rpartition("# ")[2] for line in words(level_2(tmp_path))] == ["0.0", "0.1", "0.2"]


ADDMM = OperatorSchema(
    "aten.addmm.out",
    (
        *(Parameter(name, "Tensor") for name in ("self", "mat1", "mat2")),
        *(Parameter(name, "number", keyword_only=True, default=True) for name in ("beta", "alpha")),
        Parameter("out", "Tensor", keyword_only=True, out=True),
    ),
    returns=0,
    text="aten::addmm.out(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, Tensor(a!) out) -> "
    "Tensor(a!)",
)
JOIN = OperatorSchema(
    "mylib.join.default",
    (
        Parameter("xs", "List[Tensor]"),
        Parameter("sizes", "List[int]"),
        Parameter("deep", "bool", default=True),
        Parameter("mode", "str", default=True),
    ),
    returns=1,
    text='mylib::join(Tensor[] xs, int[] sizes, bool deep=False, str mode="mul") -> Tensor',
)


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("aten.addmm.out", "aten::addmm"),
        ("aten.sort.stable", "aten::sort.stable"),
        ("aten.scatter_reduce.two_out", "aten::scatter_reduce.two"),
        ("mylib::op.default", "mylib::op"),
    ],
)
def test_names_are_those_of_eager(op: str, name: str) -> None:
    assert operator_name(op) == name


def given(name: str, value: Value, param: str, role: Role = Role.IN, form: Form = Form.TENSOR) -> Argument:
    return Argument(0, arg(name, role, form, param=param), value, value)


def number(value: float, param: str) -> Argument:
    return given(param, Number(value, CType.F64), param, Role.NONE, Form.SCALAR)


def texts(
    schema: OperatorSchema | None, *arguments: Argument, operands: tuple[ProxyArgument, ...] = ()
) -> tuple[str, ...]:
    return argument_texts(site("k", operands=operands), schema, arguments, lambda a: a.name)


def test_the_order_is_the_schemas_and_defaults_are_left_out() -> None:
    arguments = [given("buf1", tensor(2), "out", Role.OUT)]
    arguments += [given(name, tensor(2), name) for name in ("self", "mat1", "mat2")]
    assert texts(ADDMM, *arguments, number(1.0, "beta"), number(0.5, "alpha")) == ("self", "mat1", "mat2", "alpha=0.5")


def test_lists_flags_and_constants() -> None:
    xs = [given(f"buf{n}", tensor(2), f"xs[{n}]", form=Form.LIST) for n in range(2)]
    sizes = [given(f"sizes[{n}]", Number(n, CType.I64), f"sizes[{n}]", Role.NONE, Form.INTS) for n in (8, 4)]
    assert texts(JOIN, *xs, *sizes) == ("[buf0, buf1]", "[8, 4]")
    assert texts(JOIN, *xs, *sizes, number(1, "deep")) == ("[buf0, buf1]", "[8, 4]", "True")
    mode = (ProxyArgument("mode", False, '{"as_string": "add"}'),)
    assert texts(JOIN, *xs, *sizes, operands=mode) == ("[buf0, buf1]", "[8, 4]", "False", "'add'")


def test_an_operator_that_torch_does_not_know() -> None:
    assert texts(None, given("buf0", tensor(2), "x"), number(2, "times")) == ("buf0", "times=2")
    assert texts(JOIN, given("buf0", tensor(2), "tensor")) == ("buf0",)
