from __future__ import annotations

from dataclasses import dataclass

import pytest

from aoti_debug.base import terminal_cells
from aoti_debug.base.terminal_cells import Column, TextTable, table


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


def test_words_flow() -> None:
    assert terminal_cells.wrap_words(["aa", "bb", "cccccccc", "d"], 8, " ") == [" aa  bb", " cccccccc", " d"]
    assert terminal_cells.wrap_words([], 8) == []


def test_sentences_are_wrapped_between_words() -> None:
    assert terminal_cells.wrapped("a well-known sentence", 10, "  ") == ["  a", "well-known", "  sentence"]
    assert terminal_cells.wrapped("  where  model.py:12 in", 21, hang="    ") == ["  where  model.py:12", "    in"]


def test_wide_characters_are_wrapped_by_their_cells() -> None:
    assert terminal_cells.wrapped("模型 模型 模型", 9) == ["模型 模型", "模型"]


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("short", ["short"]),
        ("note: aa bb cc dd ee ff", ["note: aa bb cc", "      dd ee ff"]),
        ("  label    aa bb cc", ["  label    aa bb", "           cc"]),
        ("one two three four five", ["one two three", "  four five"]),
        ("    one two three four", ["    one two", "      three four"]),
        ("  label    a/long/path", ["  label", "     a/long/path"]),
        ("a/path/that/is/longer/than/it", ["a/path/that/is/longer/than/it"]),
    ],
)
def test_a_line_hangs_under_the_text_behind_its_label(line: str, lines: list[str]) -> None:
    assert terminal_cells.fitted(line, 16) == lines


def test_a_command_in_two_lines_can_be_copied() -> None:
    assert terminal_cells.fitted("next: aoti-debug run model.pt2 --inputs FILE.pt", 34) == [
        "next: aoti-debug run model.pt2 \\",
        "      --inputs FILE.pt",
    ]
    first, _ = terminal_cells.fitted("  next     python repro/repro.py --repeat 100", 34)
    assert first == "  next     python repro/repro.py \\"
    assert terminal_cells.fitted("next: what finds races is a sanitizer", 30)[0] == "next: what finds races is a"


def test_a_sentence_loses_words() -> None:
    sentence = terminal_cells.Sentence("not compared: an output that no launch reads")
    assert sentence.fit(50) == str(sentence)
    assert sentence.fit(20) == "not compared: an …"
    assert sentence.fit(16) == "not compared …"
    assert sentence.fit(14) == "not compared …"
    assert terminal_cells.Sentence("incomparable words").fit(8) == "inco…ble"


COLUMNS = (
    Column("id", align_right=True),
    Column("name", min_width=6, share=2),
    Column("where", min_width=5, share=1),
)


@dataclass(frozen=True)
class Stars:
    """Shortens itself."""

    def __str__(self) -> str:
        return "*" * 30

    def fit(self, width: int) -> str:
        return str(self) if width >= 30 else f"{width} stars"


def test_a_table_is_as_wide_as_it_has_to_be() -> None:
    assert table(COLUMNS, [["1", "a_b", "x.py:1"], ["20", "c", ""]], 100) == TextTable(
        (
            "id  name  where",
            "--  ----  ------",
            " 1  a_b   x.py:1",
            "20  c",
        ),
        dropped=(),
        shortened=False,
    )


def test_cells_that_are_too_long_lose_their_middle() -> None:
    assert table(COLUMNS, [["1", "alpha_beta_gamma_delta", "directory/file.py:1"]], 26) == TextTable(
        (
            "id  name          where",
            "--  ------------  --------",
            " 1  alpha_…delta  dire…y:1",
        ),
        dropped=(),
        shortened=True,
    )


def test_a_cell_may_shorten_itself() -> None:
    assert table(COLUMNS, [["1", Stars(), "x"]], 19).lines[-1] == " 1  8 stars   x"
    assert table(COLUMNS, [["1", Stars(), "x"]], terminal_cells.UNLIMITED).lines[-1].count("*") == 30


@pytest.mark.parametrize(("width", "titles"), [(16, ["id"]), (18, ["id", "kind"]), (60, ["id", "kind"])])
def test_a_column_is_dropped_where_a_narrow_table_would_be_shortened(width: int, titles: list[str]) -> None:
    columns = (Column("id"), Column("kind", dropped_below=17))
    rendered = table(columns, [["1" * 8, "shim_alloc"]], width)
    assert rendered.lines[0].split() == titles
    assert (rendered.dropped, rendered.shortened) == ((("kind",) if len(titles) == 1 else ()), False)


def test_a_narrow_table_that_fits_keeps_its_columns() -> None:
    assert table((Column("id"), Column("kind", dropped_below=100)), [["1", "cpp"]], 80).lines[0] == "id  kind"


def test_wide_characters_take_two_cells() -> None:
    rendered = table((Column("name"), Column("x")), [["模型", "1"], ["ab", "2"]], 80)
    assert rendered.lines[2:] == ("模型  1", "ab    2")


def test_no_rows() -> None:
    assert table(COLUMNS, [], 40).lines == ("id  name  where", "--  ----  -----")
