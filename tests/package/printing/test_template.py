from __future__ import annotations

from typing import Any

import pytest

from aoti_debug.package.printing import template
from aoti_debug.package.printing.template import TemplateError, ValueKind


class Tensor:
    """A value that is known at run time; its text is as long as that of a tensor might be."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def made(text: str, *args: Any, **kwargs: Any) -> template.Template:
    def kind_of(value: Any) -> ValueKind:
        return {Tensor: ValueKind.TENSOR, complex: ValueKind.FLOAT, int: ValueKind.INTEGER}.get(
            type(value), ValueKind.CONSTANT
        )

    return template.make(text, args, kwargs, kind_of, lambda value: Tensor(str(value.real)))


def formatted(text: str, *args: Any, **kwargs: Any) -> str:
    """What the template says once its values are there."""
    result = made(text, *args, **kwargs)
    values = {f"t{n}": t for n, t in enumerate(result.tensors)} | {f"i{n}": i for n, i in enumerate(result.integers)}
    return result.text.format(**values)


A, B = Tensor("a"), Tensor("b")


@pytest.mark.parametrize(
    ("text", "args", "kwargs"),
    [
        ("hello {{}} }}{{", (), {}),
        ("y={y} n={}", (5,), {"y": A}),
        ("{1} {0} {1}", (A, B), {}),
        ("{} {!r} {!s}", ("text", "text", A), {}),
        ("{:>8.3f}|{:5d}|{:+}", (1.5, 3, 4), {}),
        ("{}", ([A, (B,), {"k": 3, "{": "}"}, "s", (1, 2)],), {}),
        ("{} {}", (None, True), {}),
    ],
)
def test_a_template_says_what_format_says(text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert formatted(text, *args, **kwargs) == text.format(*args, **kwargs)


def test_what_is_known_is_put_in_words() -> None:
    result = made("{} {} {} {:.2f} {x:5d}", A, "b{", 2j, 1.0, x=7)
    assert (result.text, result.integers) == ("{t0} b{{ {t1} 1.00 {i0:5d}", (7,))
    assert result.tensors[0] is A
    assert repr(result.tensors[1]) == "0.0"


@pytest.mark.parametrize(
    ("text", "args", "problem"),
    [
        ("{}", (), r"there is no value for the field \{0\}: 0 are passed"),
        ("{x}", (), r"there is no value for the field \{x\}"),
        ("{x.shape}", (), "looks into its value"),
        ("{", (), "is no format string"),
        ("{} {0}", (A,), "both numbered and unnumbered"),
        ("{0} {}", (A,), "both numbered and unnumbered"),
        ("{:x}", (A,), "cannot print the format 'x'"),
        ("{:.3}", (A,), r"cannot print the format '\.3'"),
        ("{!r:5}", (A,), "cannot print the format '!r:5'"),
        ("{:d}", ("text",), "Unknown format code"),
        ("{:d}", ([A],), "does not fit a list"),
    ],
)
def test_what_cannot_be_printed(text: str, args: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(TemplateError, match=problem):
        made(text, *args)


def test_bytes_that_a_c_string_does_not_hold() -> None:
    assert template.c_safe('a "b"\n{t0} é?') == "a {x22}b{x22}{x0a}{t0} {xc3}{xa9}{x3f}"
