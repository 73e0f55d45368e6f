from __future__ import annotations

import pytest

from aoti_debug.runs.show import terminal_cells


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("→ µ…", 4), ("模型.py", 7), ("e\u0301", 1), ("", 0)])
def test_width(text: str, width: int) -> None:
    assert terminal_cells.count(text) == width


def test_padding() -> None:
    assert terminal_cells.pad("模", 4) == "模  "
    assert terminal_cells.pad_left("模", 4) == "  模"
    assert terminal_cells.pad("long", 2) == terminal_cells.pad_left("long", 2) == "long"


def test_a_name_that_is_too_long_keeps_both_ends() -> None:
    assert terminal_cells.shorten_middle("abcdef", 6) == "abcdef"
    assert terminal_cells.shorten_middle("abcdefgh", 5) == "ab…gh"
    assert terminal_cells.shorten_middle("abcdefgh", 1) == "…"
    assert terminal_cells.shorten_middle("abcdefgh", terminal_cells.UNLIMITED) == "abcdefgh"


@pytest.mark.parametrize("width", range(1, 12))
def test_wide_characters_are_not_halved(width: int) -> None:
    assert width - 2 <= terminal_cells.count(terminal_cells.shorten_middle("模型模型模型.py", width)) <= width
