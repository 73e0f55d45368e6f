from __future__ import annotations

from aoti_debug.show.grid import Column, lines

COLUMNS = (
    Column("id"),
    Column("name", least=6, share=2, folds=True, breaks_after=("_",)),
    Column("where", least=5, share=1),
)


def test_a_table_is_as_wide_as_it_has_to_be() -> None:
    assert lines(COLUMNS, [["1", "a_b", "x.py:1"], ["20", "c", ""]], 100) == [
        "id  name  where",
        "--  ----  ------",
        "1   a_b   x.py:1",
        "20  c",
    ]


def test_cells_fold_after_their_breaks_and_others_lose_their_middle() -> None:
    assert lines(COLUMNS, [["1", "alpha_beta_gamma_delta", "directory/file.py:1"]], 26) == [
        "id  name          where",
        "--  ------------  --------",
        "1   alpha_beta_   dire…y:1",
        "    gamma_delta",
    ]


def test_a_cell_without_a_break_is_cut_where_the_column_ends() -> None:
    found = lines(COLUMNS, [["1", "x" * 13, "y"]], 18)
    assert found[2:] == ["1   xxxxxxx  y", "    xxxxxx"]


def test_a_word_is_broken_only_where_it_does_not_fit_into_a_line() -> None:
    columns = (Column("arguments", least=16, share=1, folds=True, breaks_after=(" ", "_.")),)
    names = "buf1, a_b, layers_0_self_attn_in_proj_weight, layers.0.norm.weight → buf2_view, buf3"
    assert lines(columns, [[names]], 16)[2:] == [
        "buf1, a_b,",
        "layers_0_self_",
        "attn_in_proj_",
        "weight,",
        "layers.0.norm.",
        "weight →",
        "buf2_view, buf3",
    ]


def test_no_rows() -> None:
    assert lines(COLUMNS, [], 40) == ["id  name  where", "--  ----  -----"]
