"""Functions of Inductor's module of Triton helpers, cut out of its text."""

from __future__ import annotations

import pytest

from aoti_debug.instrument.wrapper.callees.triton_helpers import closure, definitions, free_names, helpers_of

MODULE = """import math as pymath
from .triton_compat import libdevice, tl, triton

_LOG_2_E: tl.constexpr = tl.constexpr(pymath.log2(pymath.e))
unused = 1


@triton.jit
def is_floating(x):
    return promote_to_tensor(x).dtype.is_floating()


@triton.jit
def promote_to_tensor(x):
    # Addition promotes to tensor for us
    return x + tl.zeros((1,), tl.int1)


@triton.jit
def exp(x):
    return libdevice.exp2(x * _LOG_2_E)


@triton.jit
def fp8(x):
    exp = (x >> 3) & 0xF
    return exp
"""


def names(*wanted: str) -> list[str]:
    return [d.name for d in closure(definitions(MODULE), wanted)]


def test_what_a_function_calls_comes_along_in_the_order_of_the_text() -> None:
    assert names("is_floating") == ["is_floating", "promote_to_tensor"]
    assert names("exp") == ["_LOG_2_E", "exp"]


def test_a_variable_of_a_helpers_name_is_not_the_helper() -> None:
    assert names("fp8") == ["fp8"]


def test_unknown_names_are_left_out() -> None:
    assert names("nothing", "promote_to_tensor") == ["promote_to_tensor"]


def test_a_definition_keeps_its_lines() -> None:
    text = definitions(MODULE)["promote_to_tensor"].text
    assert text.startswith("@triton.jit\ndef promote_to_tensor(x):\n    # Addition")
    assert text.endswith("tl.int1)\n")


def test_only_what_kernels_use_is_kept() -> None:
    kernel = "def k(x):\n    y = triton_helpers.is_floating(x)\n    return y\n"
    text = helpers_of([kernel, "def other(x):\n    return x\n"], MODULE)
    assert list(definitions(text)) == ["is_floating", "promote_to_tensor"]
    assert helpers_of(["x = 1\n"], MODULE) == ""


def test_a_kept_text_can_be_cut_again() -> None:
    once = helpers_of(["def k(x):\n    return triton_helpers.exp(triton_helpers.is_floating(x))\n"], MODULE)
    assert list(definitions(once)) == ["_LOG_2_E", "is_floating", "promote_to_tensor", "exp"]
    again = ["def k(x):\n    return triton_helpers.exp(x)\n"]
    assert helpers_of(again, once) == helpers_of(again, MODULE)


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("def f(a, *b, c=d, **e):\n    g = a\n    return g + h\n", {"d", "h"}),
        ("x = y\n", {"y"}),
        ("def f():\n    for i in tl.static_range(n):\n        pass\n", {"tl", "n"}),
    ],
)
def test_free_names(text: str, free: set[str]) -> None:
    import ast

    assert free_names(ast.parse(text).body[0]) == free
