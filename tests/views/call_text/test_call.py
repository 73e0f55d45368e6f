from __future__ import annotations

import pytest

from aoti_debug.views.call_text.call import Call, CallTensor, call_lines, common_known_module

X = CallTensor("$4", "float32", ("1", "8"))
Y = CallTensor("$5", "bfloat16", ("s77",), hash="00ff")


def call(module: str, operator: str = "aten::relu", *operators: Call) -> Call:
    return Call(operator, (str(X),), (str(X),), module, (X,), operators=operators)


def test_a_call_reads_as_in_debug_mode() -> None:
    mm = Call("aten::mm", ("t$4: f32[1, 8]", "t$3: f32[8, 32]"), ("t$5: f32[1, 32]",))
    assert str(mm) == "aten::mm(t$4: f32[1, 8], t$3: f32[8, 32]) -> t$5: f32[1, 32]"
    assert str(Call("k", (), ("a", "b"), note="0.3")) == "k() -> (a, b)  # 0.3"


def test_tensors() -> None:
    assert str(X) == "t$4: f32[1, 8]"
    assert str(Y) == "t$5: bf16[s77]{hash=00ff}"
    assert str(CallTensor("%add", "bool", ())) == "%add: b8[]"
    assert str(CallTensor("%add", "", ())) == "%add"


def test_modules_are_entered_and_left() -> None:
    calls = [
        call("embedding"),
        call("encoder.layers.0.linear"),
        call("encoder.layers.0", "cpp_fused_0", call("")),
        call("encoder.layers.1"),
        call(""),
    ]
    relu = "aten::relu(t$4: f32[1, 8]) -> t$4: f32[1, 8]"
    assert call_lines(calls) == [
        "[nn.Mod] embedding",
        f"  {relu}",
        "[nn.Mod] encoder.layers.0",
        "  [nn.Mod] encoder.layers.0.linear",
        f"    {relu}",
        "  cpp_fused_0(t$4: f32[1, 8]) -> t$4: f32[1, 8]",
        f"    {relu}",
        "[nn.Mod] encoder.layers.1",
        f"  {relu}",
        relu,
    ]


@pytest.mark.parametrize(
    ("modules", "common"),
    [
        ((), ""),
        (("a.b",), "a.b"),
        (("a.b", "a.c"), "a"),
        (("a.b", "d"), ""),
        (("e.0.x", "e.1.x"), ""),  # "e" is no module of its own
    ],
)
def test_the_module_that_contains_a_fused_kernel(modules: tuple[str, ...], common: str) -> None:
    assert common_known_module(modules, {"a", "a.b", "a.c", "d", "e.0.x", "e.1.x"}) == common
