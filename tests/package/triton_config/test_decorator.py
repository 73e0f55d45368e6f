"""What the decorator of a Triton kernel's source says."""

from __future__ import annotations

import pytest

from aoti_debug.package.triton_config.decorator import is_literal, read_heuristic

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def helper(x):
    return x

@triton_heuristics.reduction(
    size_hints={'x': 4, 'r0_': 8192},
    reduction_hint=ReductionHint.INNER,
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'xnumel': 'constexpr', 'KIND': 'constexpr', 'R0_BLOCK': 'constexpr'},
        'device': DeviceProperties(type='cuda', cc=90), 'constants': {'xnumel': 1, 'KIND': triton.language.float32},
        'configs': [{(0,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'autotune_hints': set(), 'min_blocks': None, 'low': -1},
)
@triton.jit
def k(in_ptr0, xnumel, KIND, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
    pass
"""


def test_a_complete_heuristic() -> None:
    heuristic = read_heuristic(SOURCE)
    assert heuristic is not None
    assert (heuristic.name, heuristic.grid_type) == ("reduction", "Grid1D")
    assert heuristic.size_hints == {"x": 4, "r0_": 8192}
    assert heuristic.arguments["reduction_hint"] == "ReductionHint.INNER"
    assert heuristic.inductor_meta["autotune_hints"] == set()
    assert heuristic.inductor_meta["min_blocks"] is None
    assert heuristic.inductor_meta["low"] == -1
    assert heuristic.arguments["triton_meta"]["constants"] == {"xnumel": 1, "KIND": "triton.language.float32"}


def test_parameters_are_those_without_a_value() -> None:
    heuristic = read_heuristic(SOURCE)
    assert heuristic is not None
    assert heuristic.parameters == ("R0_BLOCK", "XBLOCK")


@pytest.mark.parametrize("source", ["", "def k(:", "@triton.jit\ndef k(x):\n    pass\n"])
def test_a_source_without_a_heuristic(source: str) -> None:
    assert read_heuristic(source) is None


def test_missing_arguments_are_empty() -> None:
    heuristic = read_heuristic(
        "@triton_heuristics.pointwise(size_hints=hints)\ndef k(x, XBLOCK: tl.constexpr):\n    pass\n"
    )
    assert heuristic is not None
    assert (heuristic.size_hints, heuristic.inductor_meta, heuristic.grid_type) == ({}, {}, "")
    assert heuristic.parameters == ("XBLOCK",)


@pytest.mark.parametrize(
    ("text", "value", "literal"),
    [
        ("-1", -1, True),
        ("(1, -2)", (1, -2), True),
        ("'tl.float32'", "tl.float32", True),
        ("tl.float32", "tl.float32", False),
        ("(16, tl.float32)", (16, "tl.float32"), False),
        ("[{'A': [x]}]", [{"A": ["x"]}], False),
        ("{A: 1}", {"A": 1}, False),
        ("{'A': 1, **more}", "{'A': 1, **more}", False),
        ("[*more]", ["*more"], False),
    ],
)
def test_literals_are_distinguished_from_sources(text: str, value: object, literal: bool) -> None:
    heuristic = read_heuristic(f"@triton_heuristics.pointwise(given={text})\ndef k():\n    pass\n")
    assert heuristic is not None
    assert heuristic.arguments["given"] == value
    assert is_literal(heuristic.arguments["given"]) is literal


@pytest.mark.parametrize("meta", ["{'signature': dict(a=1)}", "{'signature': {'a': 'i32'}, 'constants': dict(a=1)}"])
def test_a_heuristic_without_listed_parameters_is_unknown(meta: str) -> None:
    assert read_heuristic(f"@triton_heuristics.pointwise(triton_meta={meta})\ndef k(a):\n    pass\n") is None


def test_size_hints_that_are_not_numbers_are_left_out() -> None:
    heuristic = read_heuristic("@triton_heuristics.reduction(size_hints={'x': 4, 'r0_': n})\ndef k():\n    pass\n")
    assert heuristic is not None
    assert heuristic.size_hints == {"x": 4}
