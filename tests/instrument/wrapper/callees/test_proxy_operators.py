from __future__ import annotations

import json
from typing import Any

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.instrument.wrapper.callees.proxy_operators import Flat, parse, proxy_targets
from aoti_debug.package.manifest import ProxyArgument
from tests.wrong_types import assert_refused


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
