from __future__ import annotations

import pytest

from aoti_debug.package.inputs.symbolic_sizes import Symbols, is_size


@pytest.fixture
def symbols() -> Symbols:
    known = Symbols()
    known.bind("s77", 7)
    known.bind("u0", 2)
    return known


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("16", 16),
        ("s77", 7),
        ("2*s77 + 1", 15),
        ("-u0 + s77", 5),
        ("((s77//2))", 3),
        ("Max(1, u0, s77)", 7),
        ("Min(1, u0)", 1),
        ("s77**2", 49),
        ("s77 % 4", 3),
        ("PythonMod(s77, 4)", 3),
        ("FloorDiv(s77, 2)", 3),
        ("CeilDiv(s77, 2)", 4),
        ("ModularIndexing(s77*4, 2, 8)", 6),
        ("Identity(u0)", 2),
    ],
)
def test_evaluates(symbols: Symbols, expression: str, value: int) -> None:
    assert symbols.value(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        *("", "s0", "s0 + 1", "Max(1, s0)", "s77/2", "s77 // (u0 - 2)", "2**s77**9", "floor(s77)", "Identity()"),
        *("s77 +", "__import__('os')", "u0 if s77 else 1", "1.5"),
    ],
)
def test_unknown_expressions_have_no_value(symbols: Symbols, expression: str) -> None:
    assert symbols.value(expression) is None


def test_a_symbol_keeps_its_first_value(symbols: Symbols) -> None:
    symbols.bind("s77", 8)
    symbols.bind("s77 + 1", 9)
    symbols.bind("16", 17)
    assert (symbols.value("s77"), symbols.value("16")) == (7, 16)


def test_an_inner_scope_adds_to_the_outer_one(symbols: Symbols) -> None:
    first, second = Symbols(symbols), Symbols(symbols)
    first.bind("u3", 1)
    second.bind("u3", 2)
    assert (first.value("s77 + u3"), second.value("s77 + u3"), symbols.value("u3")) == (8, 9, None)


def test_names_of_sizes() -> None:
    assert [is_size(text) for text in ("s0", "u12", "s", "x1", "s1_", "buf0", "2*s0", "")] == [True] * 2 + [False] * 6
