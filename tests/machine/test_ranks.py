"""Ranks of a distributed program."""

from __future__ import annotations

import pytest

from aoti_debug.errors import UsageError
from aoti_debug.machine import ranks


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ranks.VARIABLE, raising=False)
    assert ranks.current() == 0
    monkeypatch.setenv(ranks.VARIABLE, "3")
    assert ranks.current() == 3
    assert ranks.selected(None)
    assert ranks.selected({3})
    assert not ranks.selected({0, 1})


def test_the_text_of_an_option() -> None:
    assert ranks.parse("") is None
    assert ranks.parse("0,12") == {0, 12}
    for text in ("x", "0,", ",", "-1", "0 1", "²"):
        with pytest.raises(UsageError, match=f"--ranks {text} is not numbers"):
            ranks.parse(text)
