from __future__ import annotations

import json
from typing import Any

import pytest

from aoti_debug.instrument.wrapper.analysis import Analysis, analyse
from aoti_debug.package.manifest import Arg, Form, Kind, Role, Site

TENSORS = "std::array<AtenTensorHandle, 2>{{{}}}.data()"
INTS = "std::array<int64_t, 1>{3L}.data()"
HEAD = "aoti_torch_proxy_executor_call_function(proxy_executor"


def analysed(*lines: str, proxy: object = None, schema: str = "") -> Analysis:
    body = "\n    ".join(lines)
    text = f"""namespace torch::aot_inductor {{
void AOTInductorModel::run_impl(AtenTensorHandle* input_handles, AtenTensorHandle* output_handles) {{
    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, 1);
    auto arg0_1 = std::move(inputs[0]);
    {body}
}}
}} // namespace torch::aot_inductor
"""
    return analyse(
        text, proxy=json.dumps(proxy) if proxy else "", schemas={"mylib::op.default": schema} if schema else {}
    )


def site(*lines: str, proxy: object = None, schema: str = "") -> Site:
    (only,) = analysed(*lines, proxy=proxy, schema=schema).sites
    return only


def call(*tensors: str, ints: str = INTS, index: str = "0") -> str:
    return f"{HEAD}, {index}, 1, {ints}, {len(tensors)}, {TENSORS.format(', '.join(tensors))});"


def listed(inputs: dict[str, str], *outputs: str, numbers: int = 1) -> dict[str, Any]:
    """A list of one operator, mylib::op."""
    entries: list[dict[str, Any]] = [
        {"name": name, "arg": {"as_tensor": {"name": buffer}}, "kind": 1} for name, buffer in inputs.items()
    ]
    entries += [{"name": f"n{number}", "arg": {"as_int": 3}, "kind": 1} for number in range(numbers)]
    returned = [{"as_tensor": {"name": name}} for name in outputs]
    return {"nodes": [{"name": "buf0", "node": {"target": "mylib::op", "inputs": entries, "outputs": returned}}]}


def tensors(found: Site) -> list[tuple[str, str, Role]]:
    return [(a.name, a.param, a.role) for a in found.args if a.form is Form.LIST]


def numbers(found: Site) -> list[Arg]:
    return [a for a in found.args if a.form is Form.INTS]


def test_a_call_with_its_operator() -> None:
    found = site(call("arg0_1", "buf0"), proxy=listed({"x": "arg0_1"}, "buf0"))
    assert (found.kind, found.kernel, found.op) == (Kind.PROXY, "mylib::op.default", "mylib::op.default")
    assert tensors(found) == [("arg0_1", "x", Role.IN), ("buf0", "ret0", Role.OUT)]
    assert [(a.param, a.text, a.value, a.element, a.ctype) for a in numbers(found)] == [("n0", "3L", 3, 0, "int64_t")]
    assert [(a.value, a.element) for a in found.args if a.form is Form.LIST] == [(5, 0), (5, 1)]
    assert [operand.name for operand in found.operands] == ["x", "n0"]


@pytest.mark.parametrize(
    ("passed", "schema", "roles"),
    [
        (("arg0_1", "buf0"), "mylib::op(Tensor x, int n0) -> Tensor", [Role.IN, Role.OUT]),
        (("arg0_1", "buf0"), "mylib::op(Tensor(a!) x, int n0) -> Tensor", [Role.INOUT, Role.OUT]),
        (("buf0", "buf0"), "mylib::op(Tensor x, int n0) -> Tensor", [Role.INOUT, Role.INOUT]),
    ],
)
def test_roles_by_the_schema_and_the_call(passed: tuple[str, str], schema: str, roles: list[Role]) -> None:
    found = site(call(*passed), proxy=listed({"x": passed[0]}, "buf0"), schema=schema)
    assert [role for _, _, role in tensors(found)] == roles


@pytest.mark.parametrize(
    "proxy",
    [
        None,
        listed({"x": "arg0_1"}, "buf9"),  # another result
        listed({"x": "arg0_1", "y": "arg0_1"}, "buf0"),
        listed({"x": "arg0_1"}),
        listed({"x": "arg0_1"}, "buf0", numbers=2),
        listed({"x": "arg0_1"}, "buf0", numbers=0),
    ],
)
def test_a_call_whose_operator_is_not_listed(proxy: object) -> None:
    """`_const_run_impl` counts another list."""
    found = site("AtenTensorHandle buf0_handle;", call("arg0_1", "buf0"), proxy=proxy)
    assert (found.kernel, found.op) == ("operator_0", "operator_0")
    assert [(name, param) for name, param, _ in tensors(found)] == [("arg0_1", ""), ("buf0", "")]
    assert tensors(found)[0][2] is Role.UNKNOWN
    assert [(a.param, a.text) for a in numbers(found)] == [("", "3L")]
    assert (found.operands, found.results) == ((), ())


def test_the_index_of_an_operator() -> None:
    nodes = listed({"x": "arg0_1"}, "buf8")["nodes"] + listed({"y": "arg0_1"}, "buf0")["nodes"]
    found = site(call("arg0_1", "buf0", index="1"), proxy={"nodes": nodes})
    assert tensors(found)[0] == ("arg0_1", "y", Role.IN)
    assert site(call("arg0_1", "buf0", index="2"), proxy={"nodes": nodes}).kernel == "operator_2"


@pytest.mark.parametrize(
    ("comment", "name"),
    [
        ("// Topologically Sorted Source Nodes: [y], Original ATen: [aten.complex]", "aten::complex.default"),
        ("// Topologically Sorted Source Nodes: [y], Original ATen: [aten.complex, aten.add]", "operator_0"),
    ],
)
def test_a_name_from_the_comment_above(comment: str, name: str) -> None:
    assert site(comment, call("arg0_1", "buf0")).kernel == name


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}, 0, 1, {INTS}, 2);",
        f"{HEAD}, 0, 1, {INTS}, 2, {TENSORS.format('arg0_1, buf0')}, 7);",
        call("arg0_1", "buf0", ints="ints"),
        f"{HEAD}, 0, 1, {INTS}, 2, tensors);",
        call("arg0_1", "buf0", index="index"),
    ],
)
def test_calls_in_another_form_are_reported(text: str) -> None:
    found = analysed(text)
    assert found.sites == ()
    assert [each.line for each in found.unrecognised] == [5]
