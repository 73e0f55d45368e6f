from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import pytest

from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.files.json_data import (
    DamagedJsonError,
    OtherFormatError,
    from_data,
    parse,
    parse_object,
    parse_value,
    parse_versioned,
    to_text,
)


class Color(str, Enum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


class Size(NamedTuple):
    width: int
    height: int | None = None


@dataclass(frozen=True)
class Shape:
    name: str
    points: tuple[Point, ...] = ()
    pair: tuple[str, int] = ("", 0)
    color: Color | None = None
    closed: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    parent: Shape | None = None
    value: str | int = ""
    other: int | str = 0
    anything: Any = None
    size: Size | None = None


WHOLE = Shape(
    name="a",
    points=(Point(1, 2.5), Point(-3)),
    pair=("b", 2),
    color=Color.RED,
    closed=True,
    labels={"k": "v"},
    parent=Shape("c"),
    value=4,
    anything=[1, {"deep": None}],
    size=Size(3, 4),
)


def test_an_integer_above_the_largest_float_is_no_number() -> None:
    with pytest.raises(DamagedJsonError, match=r"y is 1000+…, not a finite number"):
        from_data(Point, {"x": 1, "y": 10**400})
    assert from_data(Point, {"x": 1, "y": 2}) == Point(1, 2.0)


def test_what_is_written_is_read_back() -> None:
    assert parse(Shape, to_text(WHOLE)) == WHOLE


def test_a_named_tuple_is_written_by_name() -> None:
    assert '"size": {"width": 3, "height": 4}' in to_text(WHOLE, indent=None)


def test_a_missing_field_takes_its_default_and_an_unknown_one_is_ignored() -> None:
    assert parse(Shape, '{"name": "a", "later": 1}') == Shape("a")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "name is missing"),
        ([], "it is a list, not an object"),
        ({"name": 1}, "name is 1, not text"),
        ({"name": None}, "name is null, not text"),
        ({"name": "a", "points": [{"x": True}]}, r"points\[0\].x is true, not an integer"),
        ({"name": "a", "points": [{"x": 1.0}]}, r"points\[0\].x is 1.0, not an integer"),
        ({"name": "a", "points": [{"x": "1"}]}, r'points\[0\].x is "1", not an integer'),
        ({"name": "a", "points": [{"x": 1, "y": True}]}, r"points\[0\].y is true, not a finite number"),
        ({"name": "a", "points": [{"x": 1, "y": float("nan")}]}, r"points\[0\].y is NaN, not a finite number"),
        ({"name": "a", "points": "xy"}, 'points is "xy", not a list'),
        ({"name": "a", "pair": ["b"]}, "pair is a list, not a list of 2"),
        ({"name": "a", "color": "blue"}, 'color is "blue", not one of Color'),
        ({"name": "a", "color": []}, "color is a list, not one of Color"),
        ({"name": "a", "closed": 0}, "closed is 0, not true or false"),
        ({"name": "a", "labels": []}, "labels is a list, not an object"),
        ({"name": "a", "labels": {"k": 1}}, "labels.k is 1, not text"),
        ({"name": "a", "parent": {"name": 1}}, "parent.name is 1, not text"),
        ({"name": "a", "size": {}}, "size.width is missing"),
        ({"name": "a", "size": [3, 4]}, "size is a list, not an object"),
        ({"name": "a", "size": {"width": "3"}}, 'size.width is "3", not an integer'),
        ({"name": "a", "value": None}, "value is null, not an integer"),
        ({"name": "a", "other": None}, "other is null, not text"),
    ],
)
def test_a_wrong_type_is_refused_with_its_place(data: Any, message: str) -> None:
    with pytest.raises(DamagedJsonError, match=message):
        from_data(Shape, data)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "[" * 200_000, b"\xff"])
def test_what_is_no_json_object_is_refused(text: str | bytes) -> None:
    with pytest.raises(DamagedJsonError):
        parse_object(text)


def test_any_json_value_is_parsed() -> None:
    assert parse_value("[1, null]") == [1, None]
    assert from_data(tuple[int, ...], parse_value("[1, 2]")) == (1, 2)
    for text in ("", "[", "[" * 200_000):
        with pytest.raises(DamagedJsonError):
            parse_value(text)


def test_the_format_version_comes_first() -> None:
    assert parse_versioned('{"format": 3, "a": 1}', 3) == {"format": 3, "a": 1}
    with pytest.raises(DamagedJsonError, match="a list, not an object"):
        parse_versioned("[]", 3)
    for found, shown in (("4", "4"), ("true", "true"), ('"3"', '"3"'), ("[]", "a list")):
        with pytest.raises(OtherFormatError) as caught:
            parse_versioned(f'{{"format": {found}}}', 3)
        assert str(caught.value) == f"format {shown}; this aoti-debug reads format 3"
    with pytest.raises(OtherFormatError, match="format null"):
        parse_versioned("{}", 1)


def test_numbers_that_json_lacks_are_text() -> None:
    assert json_data.number(1.5) == 1.5
    assert json_data.number(3) == 3
    assert [json_data.number(float(text)) for text in ("nan", "inf", "-inf")] == ["nan", "inf", "-inf"]
    assert json_data.number(complex(1.0, float("inf"))) == [1.0, "inf"]
