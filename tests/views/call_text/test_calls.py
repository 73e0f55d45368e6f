from __future__ import annotations

import math

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.views.call_text.calls import Call, CallTensor, call_lines, common_known_module, parse_condition

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


MEASURED = Statistics(12, 1, 0, 2, 3, -5.0, 4.0, 0, 0, 0.5, 1.0)
EMPTY = Statistics(2, 2, 0, 0, 0, None, None, 0, 0, math.nan, math.nan)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("nan", True),
        ("inf >= 3", False),
        ("inf == 2", True),
        ("absmax > 4.5", True),
        ("max>4", False),
        ("numel == 12", True),
        ("ndim != 2", False),
        ("dtype == f16", True),
        ("dtype != torch.float16", False),
        ("std <= 1e0", True),
        ("dtype == f32 or numel > 3 and nan", True),
        ("(dtype == f32 or numel > 3) and posinf", False),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    assert parse_condition(text).holds(CallTensor("$0", "float16", ("3", "4"), statistics=MEASURED)) == holds


def test_what_is_not_known_meets_no_condition() -> None:
    unknown = CallTensor("$0", "float16", ("s0", "4"))
    assert not any(parse_condition(text).holds(unknown) for text in ("nan", "absmax >= 0", "numel > 0"))
    assert not parse_condition("absmax >= 0").holds(CallTensor("$0", "float16", ("2",), statistics=EMPTY))
    assert [parse_condition(text).needs_values for text in ("nan", "numel > 0")] == [True, False]


@pytest.mark.parametrize(
    "text", ["", "nan >", "absmax > big", "absmax", "size > 3", "dtype > f16", "dtype", "max > 1 2", "nan and"]
)
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(UsageError, match="--where does not parse: ") as caught:
        parse_condition(text)
    _, shown, caret = str(caught.value).split("\n")
    assert shown == f"  {text}"
    assert caret.strip() == "^"
    assert "absmax > 1e4" in caught.value.hint
