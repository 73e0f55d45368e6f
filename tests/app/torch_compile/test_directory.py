"""The directory of a compilation."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aoti_debug.app.torch_compile.directory import CompilationDirectory, GraphEntry, read_graphs
from aoti_debug.base.errors import UsageError


def test_folders_and_the_list_of_graphs(tmp_path: Path) -> None:
    directory = CompilationDirectory.create(tmp_path / "base")
    assert (tmp_path / "base/latest").resolve() == directory.path
    names = [directory.new_folder().name for _ in range(2)]
    assert names == ["graph0", "graph1"]
    entries = [
        GraphEntry("graph0", "forward", "model.py:3 in forward", cached=True),
        GraphEntry("graph1", "backward", "", eager="no lowering"),
    ]
    for entry in entries:
        directory.add(entry)
    assert read_graphs(directory.path) == tuple(entries)


def test_two_compilations_have_two_directories(tmp_path: Path) -> None:
    first, second = (CompilationDirectory.create(tmp_path) for _ in range(2))
    assert first.path != second.path


def test_a_place_where_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot make a directory in .*file: Not a directory") as caught:
        CompilationDirectory.create(tmp_path / "file")
    assert caught.value.hint


def test_folders_that_exist_are_left_alone_and_a_deleted_directory_is_made_again(tmp_path: Path) -> None:
    directory = CompilationDirectory.create(tmp_path / "base")
    (directory.path / "graph0").mkdir()
    assert directory.new_folder().name == "graph1"
    shutil.rmtree(tmp_path / "base")
    assert directory.new_folder().is_dir()
    directory.add(GraphEntry("graph2", "inference", ""))
    assert len(read_graphs(directory.path)) == 1
