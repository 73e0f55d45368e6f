"""JSON data in which one member has the wrong type."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

_WRONG: dict[type, tuple[Any, ...]] = {
    str: (True, []),
    bool: (1, "true"),
    int: (True, 1.5, []),
    float: (True, "1", []),
    list: ({}, "x", 3),
    dict: ([], "x", 3),
    type(None): (True, {}),
}


def assert_refused(
    read: Callable[[Any], object],
    data: Any,
    error: type[Exception],
    message: str = "is damaged",
    *,
    unread: Collection[str] = (),
) -> None:
    """Asserts that a reader takes `data`, and none of its copies with a value of a wrong type.

    Args:
        message: what is in the text of the error.
        unread: places that the reader does not look at: "steps[0].seconds".
    """
    read(data)
    for what, changed in _changed(data, unread):
        with pytest.raises(error, match=re.escape(message)):
            pytest.fail(f"{what} gave {read(changed)}")


def _changed(data: Any, unread: Collection[str], where: str = "") -> Iterator[tuple[str, Any]]:
    """Every copy of `data` with one value of a wrong type, and what was put where: "steps[0].seconds = True"."""
    if where in unread:
        return
    for wrong in _WRONG[type(data)]:
        yield f"{where} = {wrong!r}", wrong
    if isinstance(data, dict):
        for name, value in data.items():
            for what, changed in _changed(value, unread, f"{where}.{name}" if where else name):
                yield what, {**data, name: changed}
    elif isinstance(data, list):
        for i, value in enumerate(data):
            for what, changed in _changed(value, unread, f"{where}[{i}]"):
                yield what, [*data[:i], changed, *data[i + 1 :]]
