"""Tests of `aoti_debug.runs.run.saved_outputs`."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from aoti_debug.runs.run import saved_outputs


def test_the_files_are_in_the_order_of_the_results(tmp_path: Path) -> None:
    for name in ("10.safetensors", "2.safetensors", "note.txt"):
        (tmp_path / name).touch()
    assert list(saved_outputs.saved(tmp_path)) == [2, 10]
    assert saved_outputs.saved(tmp_path)[2] == tmp_path / "2.safetensors"
    assert saved_outputs.saved(tmp_path / "none") == {}


def test_a_folder_that_cannot_be_read_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> NoReturn:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), str(tmp_path))

    monkeypatch.setattr(os, "listdir", refused)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        saved_outputs.saved(tmp_path)


def test_a_tensor_that_cannot_be_saved_has_the_reason(tmp_path: Path) -> None:
    saved_outputs.save((torch.ones(2).to_sparse(), torch.ones(2), "word"), tmp_path)
    assert list(saved_outputs.saved(tmp_path)) == [1]
    assert saved_outputs.unsaved(tmp_path) == {0: "a tensor of float32, torch.sparse_coo, cannot be saved"}
    assert saved_outputs.unsaved(tmp_path / "none") == {}


def test_the_inputs_whose_memory_results_have(tmp_path: Path) -> None:
    x, y = torch.arange(6.0), torch.arange(4.0)
    own = torch.zeros(2, 3)
    saved_outputs.save([own, {"a": x[2:4], "n": 3}, y.expand(2, 4), x[:0]], tmp_path, ((x, 1), {"y": y[2:]}))
    assert saved_outputs.shared_inputs(tmp_path) == {1: (0,), 3: (2,)}
    assert saved_outputs.saved(tmp_path).keys() == {0, 1, 2, 3, 4}
    assert saved_outputs.shared_inputs(tmp_path / "none") == {}


def test_inputs_in_the_memory_of_each_other_are_not_told_apart(tmp_path: Path) -> None:
    x, y, wide = torch.arange(6.0), torch.arange(4.0), torch.arange(8.0)
    given = (x, wide[::2], x, y, wide[1::2], wide[:2])
    saved_outputs.save([x[:2], wide[::2], y, wide[6:]], tmp_path, given)
    assert saved_outputs.shared_inputs(tmp_path) == {2: (3,)}
