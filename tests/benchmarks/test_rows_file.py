"""Rows of a benchmark in a file: what counts, what is refused, what was cut off."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from benchmarks.rows_file import RowsFile, append, lines
from benchmarks.sharded import ShardsFile

HERE = {"torch": metadata.version("torch"), "device": "cpu"}


def test_the_last_row_of_a_case_counts(tmp_path: Path) -> None:
    file = RowsFile(tmp_path / "rows", "cpu")
    assert file.rows == {}
    file.add("a", {"n": 1})
    file.add("b", {"n": 3})
    assert file.add("a", {"n": 2}) == {"case": "a", "n": 2, **HERE}
    assert RowsFile(tmp_path / "rows", "cpu").rows == file.rows
    assert [row["n"] for row in lines(tmp_path / "rows")] == [1, 3, 2]


def test_a_row_that_was_cut_off_does_not_count_and_spoils_no_other(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text('{"case": "a", "n": 1}\n{"case": "b", "n')
    append(file, {"case": "c", "n": 3})
    assert [row["case"] for row in lines(file)] == ["a", "c"]


@pytest.mark.parametrize("other", [{"torch": "0.1"}, {"device": "cuda"}])
def test_a_file_of_another_torch_or_device_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: dict[str, str]
) -> None:
    row = {"case": "a", **HERE, **other}
    (tmp_path / "rows").write_text(json.dumps(row) + "\n")
    assert RowsFile(tmp_path / "rows", None).rows == {"a": row}  # only read, for a table
    with pytest.raises(SystemExit) as refused:
        RowsFile(tmp_path / "rows", "cpu")
    assert refused.value.code == 2
    assert f"torch {row['torch']}, {row['device']}" in capsys.readouterr().err
    append(tmp_path / "rows", {"case": "b", **HERE})
    with pytest.raises(SystemExit):  # of two, no table says which it is of
        RowsFile(tmp_path / "rows", None)


def test_a_row_that_does_not_say_what_it_was_measured_on_counts(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text('{"case": "a", "n": 1}\n')
    assert RowsFile(tmp_path / "rows", "cuda").rows == {"a": {"case": "a", "n": 1}}


def test_shards_that_are_not_done_are_left(tmp_path: Path) -> None:
    shards = ShardsFile(tmp_path / "shards")
    shards.add("a", {"points": 1}, done=True)
    shards.add("b", {"points": 1}, done=False)
    again = ShardsFile(tmp_path / "shards")
    assert sorted(again.left("abc")) == ["b", "c"]
    assert again.left("abc") == again.left("cba")
    assert again.lines["b"] == {"shard": "b", "done": False, "points": 1, **HERE}
